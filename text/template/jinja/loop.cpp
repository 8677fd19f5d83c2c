#include "text/template/jinja/loop.h"

#include "text/template/python/access.h"
#include "text/template/python/functions.h"
#include "text/template/python/operators.h"
#include "text/template/python/repr.h"

namespace qtrain {

const std::optional<PyValue>& PyLoop::peek() {
  if (!peeked_) after_ = next_();
  peeked_ = true;
  return after_;
}

std::optional<PyValue> PyLoop::advance() {
  std::optional<PyValue> item = peek();
  peeked_ = false;
  after_.reset();
  if (!item) {
    peeked_ = true;  // an exhausted iterator stays exhausted
    return std::nullopt;
  }
  ++index0_;
  before_ = std::move(current_);
  current_ = item;
  return item;
}

/// An iterable without a length is consumed to determine it.
std::optional<std::size_t> PyLoop::length() {
  if (length_) return length_;
  if ((length_ = py_length(iterable_))) return length_;
  PyItems rest;
  if (peek()) rest.push_back(*after_);
  if (after_)
    while (auto item = next_()) rest.push_back(std::move(*item));
  length_ = static_cast<std::size_t>(index0_ + 1) + rest.size();
  peeked_ = false;
  after_.reset();
  next_ = [rest = std::move(rest), at = std::size_t{0}]() mutable -> std::optional<PyValue> {
    return at < rest.size() ? std::optional(rest[at++]) : std::nullopt;
  };
  return length_;
}

std::string PyLoop::repr(PyWork&) {
  return "<LoopContext " + py_int_text(index0_ + 1) + "/" + std::to_string(*length()) + ">";
}

PyValue PyLoop::cycle(const PyArgs& args) const {
  if (args.positional.empty()) py_fail("no items for cycling given");
  return args.positional[static_cast<std::size_t>(index0_) % args.positional.size()];
}

bool PyLoop::changed(PyWork& work, const PyArgs& args) {
  PyValue value = PyValue::tuple(args.positional);
  if (last_changed_ && py_equal(work, *last_changed_, value)) return false;
  last_changed_ = std::move(value);
  return true;
}

std::optional<PyValue> PyLoop::attribute(std::string_view name) {
  const auto size = [&] { return static_cast<PyInt>(*length()); };
  if (name == "index") return index0_ + 1;
  if (name == "index0") return index0_;
  if (name == "first") return index0_ == 0;
  if (name == "last") return !peek().has_value();
  if (name == "length") return size();
  if (name == "revindex") return size() - index0_;
  if (name == "revindex0") return size() - index0_ - 1;
  if (name == "depth") return depth0_ + 1;
  if (name == "depth0") return depth0_;
  if (name == "previtem") return index0_ > 0 ? *before_ : PyValue::undefined("there is no previous item");
  if (name == "nextitem") return peek() ? *after_ : PyValue::undefined("there is no next item");
  const PyValue self(shared_from_this());
  if (name == "cycle")
    return std::make_shared<PyBuiltin>(
        "cycle", [](PyWork&, const PyValue& s, const PyArgs& a) { return s.as<PyLoop>()->cycle(a); }, self);
  if (name != "changed") return std::nullopt;
  constexpr PyFunction changed = [](PyWork& work, const PyValue& s, const PyArgs& a) {
    return PyValue(s.as<PyLoop>()->changed(work, a));
  };
  return std::make_shared<PyBuiltin>("changed", changed, self);
}

PyValue PyLoop::call(PyWork&, const PyArgs& args) {
  if (!recursion) py_fail("The loop must have the 'recursive' marker to be called recursively.");
  if (args.positional.size() != 1) py_fail("loop() takes exactly one argument");
  return recursion(args.positional[0], depth0_ + 1);
}

}  // namespace qtrain
