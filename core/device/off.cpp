#include "core/device/backend.h"

namespace qtrain::cuda {
namespace {

[[noreturn]] void refuse() {
  fail(ErrorKind::usage, {.cause = "this build has no CUDA backend",
                          .remedy = "use --device cpu, or configure with -DQTRAIN_CUDA=native"});
}

}  // namespace

std::string problem() {
  return "this build has no CUDA backend";
}
const bool kEmulated = false;
int device_count() {
  return 0;
}
DeviceInfo info(int) {
  refuse();
}
void select(int) {
  refuse();
}
void* allocate(int, std::size_t) {
  refuse();
}
void release(int, void*) {
  refuse();
}
void* allocate_pinned(std::size_t) {
  refuse();
}
void release_pinned(void*) {
  refuse();
}
void* create_stream(int) {
  refuse();
}
void destroy_stream(void*) {
  refuse();
}
void synchronize(void*) {
  refuse();
}
void synchronize_device(int) {
  refuse();
}
void copy(void*, Span, const void*) {
  refuse();
}
void fill(void*, Span, std::uint8_t) {
  refuse();
}
void call(void*, std::function<void()>) {
  refuse();
}
void* create_event(int) {
  refuse();
}
void destroy_event(void*) {
  refuse();
}
void record(void*, void*) {
  refuse();
}
void wait(void*, void*) {
  refuse();
}
bool event_done(void*) {
  refuse();
}
bool event_passed(void*) {
  refuse();
}
void synchronize_event(void*) {
  refuse();
}
double milliseconds(void*, void*) {
  refuse();
}
void push_range(const char*) noexcept {}
void pop_range() noexcept {}
void begin_record(void*) {
  refuse();
}
void* end_record(void*) {
  refuse();
}
bool is_recorded(void*) {
  refuse();
}
void drop_record(void*) noexcept {}
void replay(void*, void*) {
  refuse();
}
void destroy_graph(void*) noexcept {}
bool compares_graphs() {
  return false;
}
void require_same_graph(void*, void*) {}
std::size_t guard_bytes() {
  return 0;
}
void fence(Span) {}
void open(Span) {}
void forget(void*, Span) {}

}  // namespace qtrain::cuda
