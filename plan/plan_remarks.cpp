#include "plan/plan_remarks.h"

#include <fmt/format.h>

#include "config/fields.h"
#include "optim/table.h"

namespace qtrain {
namespace {

constexpr double kRoom = 0.9;          // maximum fraction of the memory for a recommended plan
constexpr double kWorthSaying = 1.05;  // minimum speedup
constexpr double kLittle = 0.02;       // fraction of the run's memory

/// A key that saves memory at the cost of time, and its value without that.
struct Saving {
  bool asked;
  std::string key;
  Json without;
  std::string what;
};

std::vector<Saving> savings_of(const PlanQuestion& q) {
  const TrainingSection& t = q.config.training;
  const QuantSection& quant = q.config.quant;
  const bool on_gpu = q.target.device.kind == DeviceKind::cuda;
  const std::string& policy = t.gradient_checkpointing.policy;
  const bool recomputes = policy != Recompute::kAuto && RecomputePolicy::named(policy) != RecomputePolicy{};
  return {{on_gpu && t.weight_offload, "weight_offload", false, "keeps weights in host memory"},
          {on_gpu && t.optimizer_offload, "optimizer_offload", false, "keeps optimizer states in host memory"},
          {on_gpu && t.activation_offloading, "activation_offloading", false, "keeps inputs of blocks in host memory"},
          {recomputes, "gradient_checkpointing", "auto", "recomputes activations"},
          {quant.load_in_4bit, "load_in_4bit", false,
           "saves memory but costs time, because each GEMM dequantizes its weights"},
          {quant.load_in_8bit, "load_in_8bit", false,
           "saves memory but costs time, because each GEMM dequantizes its weights"},
          {quant.load_in_fp8 && !(t.fp8 && on_gpu), "load_in_fp8", false,
           "saves memory but costs time, because each GEMM dequantizes its weights"}};
}

std::string gib(std::size_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30));
}

// Remarks on 8-bit or paged optimizer states that would be small anyway.
void remark_on_states(const PlanQuestion& q, const AnsweredPlan& now, std::vector<std::string>& out) {
  const NamedOptimizer* optimizer = find_optimizer(q.config.training.optim);
  if (!optimizer || (optimizer->rule != "adamw_8bit" && optimizer->pages == Pages::never)) return;
  if (!optimizer->rule.starts_with("adamw")) return;
  Config config = q.config;
  assign_field(config, "optim", "adamw_torch");
  const AnsweredPlan plain = plan_of(q, config);
  const double more = static_cast<double>(plain.memory.total()) - static_cast<double>(now.memory.total());
  if (more > kLittle * static_cast<double>(now.memory.total()) || !fits(plain.memory, q.target)) return;
  out.push_back(fmt::format(
      "optim={} saves only {:.0f} of {:.0f} MiB, because few parameters are trained; optim=adamw_torch is exact",
      q.config.training.optim, std::max(more, 0.0) / kMib, static_cast<double>(plain.memory.total()) / kMib));
}

}  // namespace

std::vector<std::string> plan_remarks(const PlanQuestion& q) {
  std::vector<std::string> out;
  if (q.target.memory == 0) return out;
  const AnsweredPlan now = plan_of(q, q.config);
  for (const Saving& s : savings_of(q)) {
    if (!s.asked) continue;
    Config config = q.config;
    if (!assign_field(config, s.key, s.without).error.empty()) continue;
    const AnsweredPlan plan = plan_of(q, config);
    const double faster = now.time.usual.seconds() / plan.time.usual.seconds();
    const double room = kRoom * static_cast<double>(q.target.memory);
    if (faster < kWorthSaying || static_cast<double>(plan.memory.total()) > room) continue;
    out.push_back(
        fmt::format("{} is not needed: it {}, but the run fits without it ({} of {}); {}={} is predicted to be about "
                    "{:.1f} times as fast",
                    s.key, s.what, gib(plan.memory.total()), gib(q.target.memory), s.key,
                    s.without.is_string() ? s.without.get<std::string>() : s.without.dump(), faster));
  }
  remark_on_states(q, now, out);
  return out;
}

}  // namespace qtrain
