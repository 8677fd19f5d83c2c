#include "train/plan/run_time.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "core/device.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "train/report/metrics.h"

namespace qtrain {
namespace {

constexpr double kGiga = 1e9;
constexpr double kCopyShare = 0.8;       // of a card's bandwidth, that kernels reach
constexpr double kProcessorShare = 0.6;  // of a step on a processor is spent in GEMMs

// Of a token in a block forward: norms with residual sums, rotation, the MLP's gate, operands and results of GEMMs.
double block_elements(const ModelConfig& c) {
  const auto d = static_cast<double>(c.hidden_size);
  const auto q = static_cast<double>(c.heads * c.head_dim), kv = static_cast<double>(c.kv_heads * c.head_dim);
  const double f = c.experts ? static_cast<double>(c.experts->per_token * c.experts->intermediate_size)
                             : static_cast<double>(c.intermediate_size);
  const double norms = 2 * 4 * d, rotation = 2 * (q + kv), attention = 2 * q + 2 * kv, gate = 3 * f;
  const double gemms = (d + q + 2 * kv) + (q + d) + (d + 2 * f) + (f + d);
  return norms + rotation + attention + gate + gemms;
}

// Of frozen weights that are quantized each pass writes a dense copy and reads it, unless there is one already.
double weight_bytes(const PlannedRun& run, double element) {
  const auto weights = static_cast<double>(run.model.params().linear_elements() + run.model.params().expert_elements());
  const bool coded = !run.model.quantized().empty() && run.choice.dense_copies == KeepCopies::no;
  constexpr double kCode = 0.5625;
  return weights * (coded ? kCode + 2 * element : element);
}

Tensor matrix(Ctx& ctx, const DeviceMemory& memory, Shape shape) {
  const Tensor t{memory.data(), DType::f32, std::move(shape), {}};
  ops::fill(ctx, {.y = t, .value = 0.5});
  return t;
}

template <class F>
double least_seconds(F&& work) {
  constexpr int kRuns = 4;
  double least = 1e9;
  for (int run = 0; run < kRuns; ++run) {
    Stopwatch watch;
    work();
    least = std::min(least, watch.seconds());
  }
  return least;
}

double measured_flops(Ctx& ctx) {
  constexpr std::int64_t kRows = 512, kWidth = 1024;
  const auto memory_of = [](std::int64_t rows) {
    return DeviceMemory(Device{}, static_cast<std::size_t>(rows * kWidth) * sizeof(float), "a measured GEMM");
  };
  const DeviceMemory a_memory = memory_of(kRows), b_memory = memory_of(kWidth), c_memory = memory_of(kRows);
  const Tensor a = matrix(ctx, a_memory, {kRows, kWidth}), b = matrix(ctx, b_memory, {kWidth, kWidth}),
               c = matrix(ctx, c_memory, {kRows, kWidth});
  const double least =
      least_seconds([&] { ops::gemm(ctx, {.c = store(c), .a = a, .b = b, .transpose_b = ops::Transpose::yes}); });
  return 2.0 * kRows * kWidth * kWidth / least;
}

// Of a sum of two vectors that no cache holds: two are read, and one is written.
double measured_bandwidth(Ctx& ctx) {
  constexpr std::int64_t kElements = 8 << 20;
  const std::size_t bytes = kElements * sizeof(float);
  const DeviceMemory x_memory(Device{}, bytes, "a measured sum"), y_memory(Device{}, bytes, "a measured sum");
  const Tensor x = matrix(ctx, x_memory, {kElements}), y = matrix(ctx, y_memory, {kElements});
  return 3 * static_cast<double>(bytes) / least_seconds([&] { ops::add(ctx, {.y = y, .a = x, .b = y}); });
}

}  // namespace

double StepTime::seconds() const {
  return std::max({computing, memory, host, loading}) + update;
}

std::string_view StepTime::limit() const {
  const std::array<std::pair<double, std::string_view>, 5> parts{{{computing, "compute"},
                                                                  {memory, "memory bandwidth"},
                                                                  {host, "the link to the host"},
                                                                  {loading, "data loading"},
                                                                  {update, "the update of the weights"}}};
  return std::ranges::max_element(parts)->second;
}

UpdateTraffic update_traffic(const PlannedRun& run) {
  double elements = 0;
  for (const Param* p : run.model.trained()) elements += static_cast<double>(p->own.count());
  const double state = 2 * static_cast<double>(run.optimizer.memory.state), weights = 2 * elements * sizeof(float);
  UpdateTraffic bytes{.device = elements * sizeof(float)};
  (run.optimizer.placement == Placement::device ? bytes.device : bytes.host) += state;
  (run.model.options().sharding.on_host ? bytes.host : bytes.device) += weights;
  return bytes;
}

StepWork step_work(const Dataset& rows, const TrainingSection& t) {
  const DatasetStatistics& s = rows.statistics();
  const auto tokens = static_cast<double>(s.tokens),
             count = static_cast<double>(std::max<std::int64_t>(rows.size(), 1));
  return {.mix = {.context = tokens / static_cast<double>(std::max<std::int64_t>(s.source_rows, 1)),
                  .target_share = static_cast<double>(s.target_tokens) / std::max(tokens, 1.0)},
          .micro_batch_tokens = tokens / count * static_cast<double>(t.per_device_train_batch_size),
          .micro_batches = static_cast<double>(t.gradient_accumulation_steps)};
}

StepWork rebatched(StepWork work, const TrainingSection& t) {
  const double tokens = work.micro_batch_tokens * work.micro_batches;
  work.micro_batches = static_cast<double>(t.gradient_accumulation_steps);
  work.micro_batch_tokens = tokens / work.micro_batches;
  return work;
}

StepTime step_time(const PlannedRun& run, const StepWork& work, const DeviceSpeed& speed) {
  const ModelConfig& c = run.model.config();
  const RecomputePolicy& policy = run.policy();
  const TrainingFlops flops = training_flops(run.model, work.mix, policy);
  const auto element = static_cast<double>(size_of(run.model.options().activation_dtype));
  const bool frozen = run.model.options().base == Update::frozen;
  const double layers = static_cast<double>(c.layers), tokens = work.micro_batch_tokens * work.micro_batches;
  const double again = policy.whole_blocks()
                           ? 1 + static_cast<double>(policy.group() - 1) / static_cast<double>(policy.group())
                       : policy.kind() == RecomputePolicy::Kind::selective ? 0.3
                                                                           : 0;
  const double passes = 2 + (policy.whole_blocks() ? again : 0);
  const auto trained = frozen ? 0.0 : static_cast<double>(run.model.params().linear_elements());
  const double gradients = 2 * sizeof(float) * trained;
  const double head = 5 * static_cast<double>(c.vocab_size) * element * work.mix.target_share;
  const double moved = tokens * (layers * block_elements(c) * element * (3 + again) + head) +
                       work.micro_batches * (passes * weight_bytes(run, element) + gradients);
  double from_host = 0;
  if (run.inputs == BlockInputs::host) from_host += 2 * tokens * layers * static_cast<double>(c.hidden_size) * element;
  if (run.model.options().sharding.on_host) {
    const double held = weight_bytes(run, sizeof(float));
    from_host += work.micro_batches * (2 + (policy.group() > 1 ? 1 : 0)) * held;
  }
  const UpdateTraffic update = update_traffic(run);
  return {.computing = tokens * flops.total() / speed.flops,
          .memory = moved / speed.bandwidth,
          .host = from_host / kHostBandwidth,
          .loading = speed.loading ? tokens / *speed.loading : 0,
          .update = update.device / speed.bandwidth + update.host / kHostBandwidth};
}

DeviceSpeed measured_speed(MatmulPrecision matmul, int threads) {
  Ctx ctx({}, matmul, threads);
  return {.flops = kProcessorShare * measured_flops(ctx), .bandwidth = measured_bandwidth(ctx), .loading = {}};
}

std::optional<DeviceSpeed> speed_here(const TargetDevice& target, MatmulPrecision matmul, int threads) {
  constexpr double kUsualShare = 0.4;
  if (target.device.kind == DeviceKind::cpu) return measured_speed(matmul, threads);
  const GpuModel* gpu = find_gpu(target.name);
  if (!gpu) return {};
  return published_speed(*gpu, matmul, kUsualShare);
}

DeviceSpeed published_speed(const GpuModel& gpu, MatmulPrecision matmul, double mfu) {
  return {.flops = gpu.teraflops(matmul) * 1e12 * mfu, .bandwidth = kCopyShare * gpu.bandwidth * kGiga, .loading = {}};
}

double loading_speed(const Dataset& rows, std::int64_t micro_batch_size) {
  constexpr double kLongEnough = 0.02;
  const Stopwatch watch;
  std::int64_t tokens = 0;
  for (std::int64_t row = 0; row < rows.size() && watch.seconds() < kLongEnough; row += micro_batch_size) {
    std::vector<std::int64_t> batch(static_cast<std::size_t>(std::min(micro_batch_size, rows.size() - row)));
    std::iota(batch.begin(), batch.end(), row);
    tokens += make_batch(rows, batch).size();
  }
  return static_cast<double>(tokens) / std::max(watch.seconds(), 1e-6);
}

}  // namespace qtrain
