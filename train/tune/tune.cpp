#include "train/tune/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>

#include "config/check.h"
#include "config/fields.h"
#include "core/os/stop.h"
#include "core/statistics.h"
#include "dist/collective.h"
#include "report/metrics.h"
#include "train/setup/compute.h"
#include "train/tune/trial_run.h"

namespace qtrain {
namespace {

constexpr double kNoise = 1.02;     // least gain that counts
constexpr double kGiveUp = 0.8;     // share of the best speed below which a trial is stopped early
constexpr double kWorthless = 0.6;  // share of the best predicted speed below which a plan is not tried

// The value of gradient_checkpointing that selects this policy.
Json value_of(const RecomputePolicy& policy) {
  if (policy == RecomputePolicy{}) return false;
  return policy == RecomputePolicy(RecomputePolicy::Kind::block) ? Json(true) : Json(policy.name());
}

std::vector<std::string> offloads_of(const Config& config, Device device) {
  std::vector<std::string> keys{""};
  if (device.kind == DeviceKind::cpu) return keys;
  const TrainingSection& t = config.training;
  if (!t.activation_offloading) keys.emplace_back("activation_offloading");
  if (!t.optimizer_offload && !t.weight_offload) keys.emplace_back("optimizer_offload");
  if (!t.weight_offload) keys.emplace_back("weight_offload");
  return keys;
}

class Tuner {
 public:
  Tuner(const ResolvedConfig& config, const TuneOptions& options, Log& log)
      : base_(config),
        options_(options),
        log_(log),
        allocated_(allocated_bytes(plan_compute(compute_choice(config.value)).device.kind).now),
        ctx_(make_context(compute_choice(config.value), log)),
        ignored_(config, errors_),
        phases_(errors_),
        data_(load_run_data(context(config, log), {})) {
    result_.target = target_here(ctx_.device(), ctx_.pool().size());
    constexpr DeviceSpeed kUnknown{.flops = 1e14, .bandwidth = 1e12, .loading = {}};  // only the ratio matters
    const ModelSetup setup = set_up_model(ctx_, training_request(base_.value));
    speed_ = speed_here(result_.target, {.matmul = ctx_.matmul(),
                                         .threads = ctx_.pool().size(),
                                         .hidden_size = setup.model->config().hidden_size})
                 .value_or(alike(kUnknown));
  }

  Tuning run() {
    plan_all();
    if (std::ranges::none_of(result_.trials, &Trial::fits)) {
      result_.ways = ways_to_fit(question(), result_.target.memory);
      return std::move(result_);
    }
    for (const std::size_t i : first_of_each_micro_batch()) attempt(i);
    if (result_.best)
      for (const std::size_t i : others_of(result_.trials[*result_.best].micro_batching)) attempt(i);
    compare_again();
    return std::move(result_);
  }

 private:
  RunContext context(const ResolvedConfig& config, Log& log) {
    return {.config = config,
            .ctx = ctx_,
            .log = log,
            .ignored = ignored_,
            .phases = phases_,
            .ranks = solo_,
            .sharing = solo_};
  }

  PlanQuestion question() const {
    return {.config = base_.value,
            .compute = {ctx_.device(), ctx_.matmul()},
            .target = result_.target,
            .work = [this](const Config& c) { return workload_of(c.training, data_->train, data_->evaluation); },
            .step_work = [this](const Config& c) { return step_work(data_->train, c.training); },
            .speed = speed_,
            .supported = [this](const Config& c) { return is_supported(base_, c, ctx_.device().kind); }};
  }

  Config changed(const std::vector<KeyChange>& changes) const {
    Config config = base_.value;
    for (const KeyChange& c : changes)
      check(assign_field(config, c.key, c.value).error.empty(), "tune set a key to a value that it does not accept");
    return config;
  }

  void plan_all() {
    const TrainingSection& t = base_.value.training;
    add({});
    result_.own = 0;
    const std::int64_t rows = t.per_device_train_batch_size * t.gradient_accumulation_steps;
    const std::int64_t layers = set_up_model(ctx_, training_request(base_.value)).model->config().layers;
    for (std::int64_t batch = 1; batch <= std::min(rows, data_->train.size()); ++batch)
      if (rows % batch == 0) add_plans({batch, rows / batch}, layers);
  }

  void add_plans(const MicroBatching& m, std::int64_t layers) {
    const TrainingSection& t = base_.value.training;
    std::vector<KeyChange> rows;
    if (m.micro_batch_size != t.per_device_train_batch_size)
      rows = {{"per_device_train_batch_size", m.micro_batch_size},
              {"gradient_accumulation_steps", m.gradient_accumulation_steps}};
    for (const std::string& offload : offloads_of(base_.value, ctx_.device())) {
      const bool whole = t.activation_offloading || offload == "activation_offloading";
      for (const RecomputePolicy& policy : RecomputePolicy::choices(layers)) {
        if (whole && !policy.whole_blocks()) continue;
        std::vector<KeyChange> changes = rows;
        if (!offload.empty()) changes.push_back({offload, true});
        if (!means(changes, policy)) changes.push_back({"gradient_checkpointing", value_of(policy)});
        if (!changes.empty() && is_supported(base_, changed(changes), ctx_.device().kind))
          add(std::move(changes), offload);
      }
    }
  }

  // Whether the config would use this recompute policy anyway.
  bool means(const std::vector<KeyChange>& changes, const RecomputePolicy& policy) const {
    const std::string& asked = base_.value.training.gradient_checkpointing.policy;
    if (asked != Recompute::kAuto) return RecomputePolicy::named(asked) == policy;
    return plan_of(question(), changed(changes)).policy == policy;
  }

  void add(std::vector<KeyChange> changes, std::string offload = "") {
    const Config config = changed(changes);
    const TrainingSection& t = config.training;
    const PlanQuestion q = question();
    const AnsweredPlan plan = plan_of(q, config);
    const StepWork work = q.step_work(config);
    result_.trials.push_back(
        {.changes = std::move(changes),
         .micro_batching = {t.per_device_train_batch_size, t.gradient_accumulation_steps},
         .recompute = plan.policy,
         .offload = std::move(offload),
         .planned = plan.memory.total(),
         .fits = fits(plan.memory, result_.target),
         .predicted = plan.time.map([&](const StepTime& time) { return work.tokens() / time.seconds(); })});
  }

  static bool same(const MicroBatching& a, const MicroBatching& b) { return a.micro_batch_size == b.micro_batch_size; }

  // The config as it is, then one plan per micro-batch size, largest first.
  std::vector<std::size_t> first_of_each_micro_batch() const {
    std::vector<std::size_t> chosen;
    if (result_.trials[0].fits) chosen.push_back(0);
    for (std::size_t i = result_.trials.size(); i-- > 1;) {
      const Trial& trial = result_.trials[i];
      if (!trial.fits) continue;
      const auto at = std::ranges::find_if(
          chosen, [&](std::size_t c) { return same(result_.trials[c].micro_batching, trial.micro_batching); });
      if (at == chosen.end())
        chosen.push_back(i);
      else if (*at != 0 && trial.predicted.usual >= result_.trials[*at].predicted.usual)
        *at = i;
    }
    return chosen;
  }

  std::vector<std::size_t> others_of(const MicroBatching& m) const {
    std::vector<std::size_t> others;
    for (std::size_t i = 0; i < result_.trials.size(); ++i) {
      const Trial& trial = result_.trials[i];
      const bool worth = trial.predicted.usual >= kWorthless * result_.trials[*result_.best].predicted.usual;
      if (trial.fits && worth && !trial.measured && same(trial.micro_batching, m)) others.push_back(i);
    }
    std::ranges::stable_sort(others, std::greater{}, [&](std::size_t i) { return result_.trials[i].predicted.usual; });
    return others;
  }

  void attempt(std::size_t index) {
    if (result_.stopped || tried_ >= options_.trials) return;
    ++tried_;
    Trial& trial = result_.trials[index];
    trial.number = tried_;
    try {
      measure(trial);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::memory) throw;
      trial.fits = false;  // another process took the memory
    }
    if (trial.tokens_per_second && (!result_.best || *trial.tokens_per_second > kNoise * best_speed()))
      result_.best = index;
    if (result_.stopped) return;
    log_.info("{} x {}, recomputation {}{}: {}", trial.micro_batching.micro_batch_size,
              trial.micro_batching.gradient_accumulation_steps, trial.recompute.name(),
              trial.offload.empty() ? "" : ", " + trial.offload,
              !trial.tokens_per_second
                  ? "does not fit"
                  : fmt::format("{:.0f} tokens/s{}", *trial.tokens_per_second, trial.given_up ? ", given up" : ""));
  }

  double best_speed() const { return *result_.trials[*result_.best].tokens_per_second; }

  void measure(Trial& trial) {
    const std::int64_t warmup = warm_up_steps(ctx_.device());
    ResolvedConfig config = base_;
    config.value = changed(trial.changes);
    config.value.training.max_steps = warmup + options_.steps;
    config.value.run.max_nonfinite_steps = warmup + options_.steps + 1;  // only speed matters here
    TrialRun steps(context(config, errors_), data_);
    std::vector<double> speeds;
    for (std::int64_t step = 0; step < warmup + options_.steps && !trial.given_up; ++step) {
      result_.stopped = stop_requested();
      if (result_.stopped) return;
      const Stopwatch watch;
      const StepOutcome outcome = steps.next();
      if (step < warmup) continue;
      speeds.push_back(static_cast<double>(outcome.tokens) / watch.seconds());
      const bool last = step + 1 == warmup + options_.steps;
      trial.given_up = !last && gives_up_ && result_.best && median(speeds) < kGiveUp * best_speed();
    }
    trial.measured = allocated_bytes(ctx_.device().kind).now - allocated_;
    trial.tokens_per_second = median(std::move(speeds));
  }

  // The first trial warms up the machine for the others, so measure the original and the best again.
  void compare_again() {
    const Trial& own = result_.trials[*result_.own];
    if (!result_.best || result_.best == result_.own || !own.tokens_per_second || result_.stopped) return;
    const std::size_t best = *result_.best;
    gives_up_ = false;
    for (const std::size_t i : {*result_.own, best}) {
      Trial again = result_.trials[i];
      try {
        measure(again);
      } catch (const Error& e) {
        if (e.kind() != ErrorKind::memory) throw;
        return;  // another process took the memory: keep the first figures
      }
      if (result_.stopped) return;
      result_.trials[i].given_up = false;
      result_.trials[i].tokens_per_second = std::max(*result_.trials[i].tokens_per_second, *again.tokens_per_second);
    }
    if (best_speed() <= kNoise * *own.tokens_per_second) result_.best = result_.own;
  }

  const ResolvedConfig& base_;
  TuneOptions options_;
  Log& log_;
  Log errors_{LogLevel::error};  // for trials, which would repeat the messages of the run
  std::size_t allocated_;
  Ctx ctx_;
  Solo solo_;
  IgnoredKeys ignored_;
  StartPhases phases_;
  std::shared_ptr<RunData> data_;
  Ranged<DeviceSpeed> speed_;
  Tuning result_;
  std::int64_t tried_ = 0;
  bool gives_up_ = true;  // on slower trials, after a few steps
};

}  // namespace

std::optional<double> Tuning::speedup() const {
  if (!best || !own || !trials[*own].tokens_per_second) return {};
  return *trials[*best].tokens_per_second / *trials[*own].tokens_per_second;
}

Tuning tune(const ResolvedConfig& config, const TuneOptions& options, Log& log) {
  return Tuner(config, options, log).run();
}

}  // namespace qtrain
