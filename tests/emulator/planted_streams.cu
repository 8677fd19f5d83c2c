#include <cstring>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "tests/emulator/planted.h"

/// Missing waits when a second stream copies memory to the host and back concurrently, as for block inputs and
/// optimizer state that are kept on the host.
namespace qtrain::testing {
namespace {

constexpr int kThreads = 64;

__global__ void add_to(float* y, const float* x, float v) {
  y[threadIdx.x] = x[threadIdx.x] + v;
}

/// A device buffer, the host memory where its contents are kept, and the stream that copies them.
struct Offload {
  explicit Offload(Ctx& ctx)
      : ctx(ctx),
        x(ctx, counting(kThreads)),
        buffer(ctx, std::vector<float>(kThreads)),
        y(ctx, kThreads),
        host(ctx.device(), kThreads * sizeof(float)),
        copies(ctx.device()),
        event(ctx.device()) {
    std::memset(host.data(), 0, host.bytes());
    ctx.synchronize();
  }

  void compute(float* to, const float* from) { launch(ctx, "compute", add_to, {1, kThreads}, to, from, 1.0f); }
  void leave() { copies.copy(host.data(), buffer.data(), host.bytes()); }
  void come_back() { copies.copy(buffer.data(), host.data(), host.bytes()); }
  void copies_wait_if(Variant v) {
    ctx.stream().record(event);
    if (v == Variant::right) copies.wait(event);
  }
  void work_waits_if(Variant v) {
    copies.record(event);
    if (v == Variant::right) ctx.stream().wait(event);
  }
  std::vector<float> on_host() {
    copies.synchronize();
    ctx.synchronize();
    std::vector<float> values(kThreads);
    std::memcpy(values.data(), host.data(), host.bytes());
    return values;
  }

  Ctx& ctx;
  Floats x, buffer, y;
  PinnedMemory host;
  Stream copies;
  Event event;
};

/// The copy to the host must wait until its source is computed.
std::vector<float> leaves_too_early(Ctx& ctx, Variant v) {
  Offload o(ctx);
  o.compute(o.buffer.data(), o.x.data());
  o.copies_wait_if(v);
  o.leave();
  return o.on_host();
}

/// The next work may overwrite the buffer only after its contents were copied out.
std::vector<float> overwritten_on_its_way(Ctx& ctx, Variant v) {
  Offload o(ctx);
  o.leave();
  o.work_waits_if(v);
  o.compute(o.buffer.data(), o.x.data());
  return o.on_host();
}

/// Work must wait until its inputs are back.
std::vector<float> read_before_it_is_back(Ctx& ctx, Variant v) {
  Offload o(ctx);
  o.come_back();
  o.work_waits_if(v);
  o.compute(o.y.data(), o.buffer.data());
  return o.y.values();
}

/// A copy back must wait until its destination is no longer read.
std::vector<float> comes_back_too_early(Ctx& ctx, Variant v) {
  Offload o(ctx);
  o.compute(o.y.data(), o.buffer.data());
  o.copies_wait_if(v);
  o.come_back();
  return o.y.values();
}

/// Two streams that use the same page-locked memory.
std::vector<float> fetched_before_it_left(Ctx& ctx, Variant v) {
  Offload o(ctx);
  ctx.stream().copy(o.host.data(), o.x.data(), o.host.bytes());
  o.copies_wait_if(v);
  o.come_back();
  o.copies.synchronize();
  return o.buffer.values();
}

/// As overwritten_on_its_way, by a fill.
std::vector<float> filled_on_its_way(Ctx& ctx, Variant v) {
  Offload o(ctx);
  o.leave();
  o.work_waits_if(v);
  ctx.stream().fill(o.buffer.data(), 0xff, o.host.bytes());
  return o.on_host();
}

std::vector<float> ones() {
  return std::vector<float>(kThreads, 1);
}
std::vector<float> zeros() {
  return std::vector<float>(kThreads);
}
std::vector<float> shifted() {
  std::vector<float> v = counting(kThreads);
  for (float& x : v) x += 1;
  return v;
}

}  // namespace

std::vector<Planted> planted_in_streams() {
  return {
      {"offload_leaves_too_early", leaves_too_early, shifted(),
       "race of streams: writes device memory that 'copy' of another stream reads"},
      {"offload_overwritten_on_its_way", overwritten_on_its_way, zeros(),
       "race of streams: writes device memory that 'copy' of another stream reads"},
      {"offload_read_before_it_is_back", read_before_it_is_back, ones(),
       "race of streams: reads device memory that 'copy' of another stream writes"},
      {"offload_comes_back_too_early", comes_back_too_early, ones(),
       "race of streams: reads device memory that 'copy' of another stream writes"},
      {"offload_fetched_before_it_left", fetched_before_it_left, counting(kThreads),
       "race of streams: 'copy' reads what 'copy' of another stream writes"},
      {"offload_filled_on_its_way", filled_on_its_way, zeros(),
       "race of streams: 'fill' writes what 'copy' of another stream reads"},
  };
}

}  // namespace qtrain::testing
