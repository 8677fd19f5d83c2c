#include "bench/cases/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/launch_times.h"
#include "core/rng.h"

namespace qtrain::bench {
namespace {

constexpr int kWarmUps = 3, kMinRounds = 5, kMaxRounds = 100;
constexpr std::size_t kAlignment = 256;

std::size_t aligned_bytes(const Operand& o) {
  const std::size_t bytes = static_cast<std::size_t>(o.shape.numel()) * size_of(o.dtype);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Element i of an operand.
double value_of(const Operand& o, std::int64_t i) {
  const auto at = static_cast<std::uint64_t>(i);
  switch (o.contents) {
    case Contents::given: return o.values.at(static_cast<std::size_t>(i));
    case Contents::places: return static_cast<double>(i);
    case Contents::ids: return static_cast<double>(philox(1, 0, at)[0] % static_cast<std::uint64_t>(o.limit));
    default: break;
  }
  const double x = 2 * uniform(philox(1, 0, at / 4)[at % 4]) - 1;
  return o.contents == Contents::positive ? std::abs(x) + 0.01 : x;
}

void put(const Tensor& to, std::int64_t i, double value) {
  switch (to.dtype) {
    case DType::i8: to.as<std::int8_t>()[i] = static_cast<std::int8_t>(value); break;
    case DType::u8: to.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(value); break;
    case DType::i32: to.as<std::int32_t>()[i] = static_cast<std::int32_t>(value); break;
    case DType::i64: to.as<std::int64_t>()[i] = static_cast<std::int64_t>(value); break;
    case DType::f64: to.as<double>()[i] = value; break;
    case DType::f32: to.as<float>()[i] = static_cast<float>(value); break;
    default: to.as<Bf16>()[i] = Bf16(static_cast<float>(value)); break;
  }
}

/// The period of random values: generating more takes longer than using them.
constexpr std::int64_t kPeriod = (std::int64_t{1} << 20) - 3;

/// The values of an operand, or of their first period.
std::vector<std::byte> values_of(const Operand& o) {
  const bool repeats = o.contents != Contents::given && o.contents != Contents::places;
  const std::int64_t count = repeats ? std::min(kPeriod, o.shape.numel()) : o.shape.numel();
  std::vector<std::byte> values(static_cast<std::size_t>(count) * size_of(o.dtype));
  const Tensor host{values.data(), o.dtype, {count}, {}};
  for (std::int64_t i = 0; i < count; ++i) put(host, i, value_of(o, i));
  return values;
}

void fill(Ctx& ctx, const Tensor& tensor, std::span<const std::byte> values) {
  for (std::size_t at = 0; at < tensor.bytes(); at += values.size())
    ctx.stream().copy(tensor.data + at, values.data(), std::min(values.size(), tensor.bytes() - at));
}

/// Copies of a case's operands.
class Copies {
 public:
  Copies(Ctx& ctx, const Case& c, std::size_t rotated) {
    std::size_t bytes = 0;
    for (const Operand& o : c.operands) bytes += aligned_bytes(o);
    const std::size_t count = bytes > 0 ? std::clamp<std::size_t>((rotated + bytes - 1) / bytes, 1, 64) : 1;
    copies_.resize(count);
    for (const Operand& o : c.operands) {
      const std::vector<std::byte> values = values_of(o);
      for (std::vector<Argument>& copy : copies_) {
        memory_.emplace_back(ctx.device(), aligned_bytes(o), c.name);
        copy.push_back({{memory_.back().data(), o.dtype, o.shape, ctx.device()}, o.adds});
        fill(ctx, copy.back().tensor, values);
      }
      ctx.synchronize();
    }
  }
  std::span<const Argument> next() { return copies_[next_++ % copies_.size()]; }

 private:
  std::vector<DeviceMemory> memory_;
  std::vector<std::vector<Argument>> copies_;
  std::size_t next_ = 0;
};

/// Seconds of one run. A GPU waits until the run is queued, so that the host's launch time is not measured.
double once(Ctx& ctx, const Run& run, std::span<const Argument> operands) {
  if (ctx.device().kind == DeviceKind::cuda) {
    Event begin(ctx.device()), end(ctx.device());
    StreamGate gate(ctx.stream());
    ctx.stream().record(begin);
    run(ctx, operands);
    ctx.stream().record(end);
    gate.open();
    ctx.synchronize();
    return end.milliseconds_since(begin) / 1e3;
  }
  const auto begin = std::chrono::steady_clock::now();
  run(ctx, operands);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

Effort effort_for(Device device) {
  // The largest level-2 cache of any GPU is 126 MiB.
  return {.seconds = 0.2, .rotated = std::size_t{device.kind == DeviceKind::cuda ? 256u : 64u} << 20};
}

double median_seconds(Ctx& ctx, const Case& c, const Effort& effort) {
  const Run run = c.prepare();
  Copies copies(ctx, c, effort.rotated);
  std::vector<double> seconds;
  double first = 0;
  for (int i = 0; i < (effort.seconds > 0 ? kWarmUps : 0); ++i) first = once(ctx, run, copies.next());
  const double wanted = first > 0 ? effort.seconds / first : 0;
  const int rounds = effort.seconds > 0 ? static_cast<int>(std::clamp<double>(wanted, kMinRounds, kMaxRounds)) : 1;
  for (int i = 0; i < rounds; ++i) seconds.push_back(once(ctx, run, copies.next()));
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

void run_once(Ctx& ctx, const Case& c, const std::function<void(const std::function<void()>&)>& around) {
  const Run run = c.prepare();
  Copies copies(ctx, c, 0);
  const std::span<const Argument> operands = copies.next();
  run(ctx, operands);
  around([&] { run(ctx, operands); });
}

}  // namespace qtrain::bench
