#include "train/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "train/machine.h"

namespace qtrain {
namespace {

constexpr double kMib = 1 << 20;

// Rows of unequal length: a micro-batch of fewer rows may hold the longest ones.
BatchSize smaller(const BatchSize& largest, std::int64_t rows) {
  const std::int64_t tokens = std::min(largest.tokens, rows * largest.positions);
  return {.tokens = tokens, .positions = largest.positions, .targets = std::min(largest.targets, tokens)};
}

}  // namespace

std::size_t MemoryPlan::total() const {
  std::size_t sum = 0;
  for (const Part& p : parts) sum += p.bytes;
  return sum;
}

std::string MemoryPlan::table() const {
  std::vector<Part> sorted = parts;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Part& a, const Part& b) { return a.bytes > b.bytes; });
  std::string text;
  for (const Part& p : sorted)
    if (p.bytes > 0)
      text += fmt::format("{}{} {:.0f} MiB", text.empty() ? "" : ", ", p.name, static_cast<double>(p.bytes) / kMib);
  return text;
}

MemoryPlan memory_plan(Transformer& model, Optimizer& optimizer) {
  return {{{"weights", model.weights().values().planned()},
           {"adapter", model.adapter().values().planned()},
           {"gradients", model.weights().grads().planned() + model.adapter().grads().planned()},
           {"optimizer state", optimizer.state().values().planned()},
           {"activations", model.activations().planned()}}};
}

std::size_t free_memory(Device device) {
  if (device.kind == DeviceKind::cuda) return cuda_info(device.index).free_bytes;
  return static_cast<std::size_t>(machine_memory().usable());
}

Window fitting_window(const Transformer& model, const Demand& demand, std::size_t bytes) {
  for (Window w = demand.window; w.batch_size % 2 == 0;) {
    w = {w.batch_size / 2, w.accumulation * 2};
    if (model.activation_bytes(Pass::train, smaller(demand.largest, w.batch_size)) <= bytes) return w;
  }
  return {1, 0};
}

ErrorText does_not_fit(const MemoryPlan& plan, const Transformer& model, const Demand& demand) {
  const std::size_t fixed = plan.total() - model.activations().planned();
  const Window fits = fixed < demand.there ? fitting_window(model, demand, demand.there - fixed) : Window{1, 0};
  const std::string other = "set gradient_checkpointing to true, lower max_length, or train an adapter (use_peft)";
  return {.cause = fmt::format("the run does not fit into memory: {:.0f} MiB needed ({}), {:.0f} MiB there",
                               static_cast<double>(plan.total()) / kMib, plan.table(),
                               static_cast<double>(demand.there) / kMib),
          .remedy = fits.accumulation == 0
                        ? other
                        : fmt::format("per_device_train_batch_size={} with gradient_accumulation_steps={} fits",
                                      fits.batch_size, fits.accumulation)};
}

}  // namespace qtrain
