#include "text/template/python/work.h"

namespace qtrain {
namespace {

constexpr std::size_t kReadsPerMade = 8;                 // bytes that can be read in the time of creating one
constexpr std::size_t kMaxSize = std::size_t{64} << 20;  // for one string, or a list times the size of an item
constexpr int kMaxDepth = 900;

}  // namespace

void PyWork::step(std::size_t count) {
  steps_ += count;
  if (steps_ > limits_.steps) py_fail("the template takes too many steps; it may never end");
}

void PyWork::require_fits(std::size_t size) {
  if (size > kMaxSize) py_fail("the template creates a text or list that is too large");
}

void PyWork::make(std::size_t size) {
  require_fits(size);
  step();
  made_ += size;
  if (made_ > limits_.made) py_fail("the template creates too much text");
}

void PyWork::read(std::size_t size) {
  made_ += size / kReadsPerMade;
  if (made_ > limits_.made) py_fail("the template reads too much text");
}

void PyWork::enter() {
  step();
  if (++depth_ <= kMaxDepth) return;
  --depth_;
  py_fail("the template, or a value in it, is nested too deeply");
}

}  // namespace qtrain
