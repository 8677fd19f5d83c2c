#include "plan/ways_to_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "config/fields.h"
#include "model/recompute.h"
#include "optim/table.h"
#include "train/setup/model_setup.h"

namespace qtrain {
namespace {

/// A possible change. A combination takes at most one option with the same `about`.
struct Option {
  std::string about;
  std::vector<KeyChange> changes;
  double price = 0;  ///< penalty for changing the result, as a fraction of a step's time
  std::string costs = {};
};

constexpr double kOtherNumbers = 0.25, kOtherWeights = 1;

// Micro-batch sizes from half of the config's down to 1.
void add_micro_batches(const Config& config, std::vector<Option>& out) {
  const TrainingSection& t = config.training;
  const std::int64_t rows = t.per_device_train_batch_size * t.gradient_accumulation_steps;
  for (std::int64_t batch = t.per_device_train_batch_size / 2; batch > 0; batch /= 2) {
    while (rows % batch != 0) --batch;
    out.push_back({.about = "batch",
                   .changes = {{"per_device_train_batch_size", batch}, {"gradient_accumulation_steps", rows / batch}}});
  }
}

void add_policies(const PlanQuestion& q, std::int64_t layers, std::vector<Option>& out) {
  const TrainingSection& t = q.config.training;
  for (const RecomputePolicy& policy : RecomputePolicy::choices(layers)) {
    const bool automatic =
        t.gradient_checkpointing.policy == Recompute::kAuto;  // "auto" has already tried all policies
    if (policy == RecomputePolicy{} || (t.activation_offloading && !policy.whole_blocks())) continue;
    const bool block = policy == RecomputePolicy(RecomputePolicy::Kind::block);
    const Json value = block ? Json(true) : Json(policy.name());
    if (!automatic) out.push_back({.about = "policy", .changes = {{"gradient_checkpointing", value}}});
    const bool offloads = q.target.device.kind == DeviceKind::cuda && !t.activation_offloading;
    if (block && offloads)
      out.push_back(
          {.about = "policy", .changes = {{"gradient_checkpointing", value}, {"activation_offloading", true}}});
  }
}

void add_states(const PlanQuestion& q, std::vector<Option>& out) {
  const TrainingSection& t = q.config.training;
  const NamedOptimizer* optimizer = find_optimizer(t.optim);
  if (optimizer && optimizer->rule == "adamw")
    out.push_back({.about = "optim",
                   .changes = {{"optim", "adamw_8bit"}},
                   .price = kOtherNumbers,
                   .costs = "keeps the optimizer's state in 8 bits"});
  if (q.target.device.kind == DeviceKind::cpu) return;
  if (!t.optimizer_offload && !t.weight_offload)
    out.push_back({.about = "host", .changes = {{"optimizer_offload", true}}});
  if (!t.weight_offload) out.push_back({.about = "host", .changes = {{"weight_offload", true}}});
}

void add_weights(const Config& config, std::vector<Option>& out) {
  const bool coded = config.quant.load_in_4bit || config.quant.load_in_8bit || config.quant.load_in_fp8;
  const bool adapts = config.lora.use_peft || config.model.adapter_name_or_path;
  const KeyChange codes{"load_in_4bit", true};
  if (adapts && !coded)
    out.push_back({.about = "weights",
                   .changes = {codes},
                   .price = kOtherNumbers,
                   .costs = "rounds the frozen weights to 4 bits (QLoRA)"});
  if (adapts) return;
  const KeyChange adapter{"use_peft", true}, layers{"lora_target_modules", "all-linear"};
  out.push_back({.about = "weights",
                 .changes = {adapter, layers},
                 .price = kOtherWeights,
                 .costs = "trains an adapter instead of all weights"});
  out.push_back({.about = "weights",
                 .changes = {adapter, layers, codes},
                 .price = kOtherWeights + kOtherNumbers,
                 .costs = "trains an adapter on 4-bit weights (QLoRA)"});
}

std::vector<Option> options_of(const PlanQuestion& q, std::int64_t layers, const Workload& work) {
  std::vector<Option> out;
  add_micro_batches(q.config, out);
  add_policies(q, layers, out);
  add_states(q, out);
  add_weights(q.config, out);
  if (work.evaluation && q.config.training.per_device_eval_batch_size > 1)
    out.push_back({.about = "evaluation", .changes = {{"per_device_eval_batch_size", 1}}});
  return out;
}

/// Searches combinations of a few options, one of each kind, and keeps those that fit.
class Search {
 public:
  Search(const PlanQuestion& q, std::size_t room) : q_(q), room_(room), now_(plan_of(q, q.config)) {
    const ModelSetup setup = set_up_model(q.compute, training_request(q.config));
    options_ = options_of(q, setup.model->config().layers, q.work(q.config));
    std::erase_if(options_, [&](const Option& o) { return o.about == "policy" && is_now(o); });
  }

  std::vector<WayToFit> run(std::size_t most) {
    for (std::size_t size = 1; size <= kLargest && tried_ < kPlanLimit; ++size) {
      if (kinds() >= most && std::ranges::any_of(found_, [](const Found& f) { return f.way.same_result; })) break;
      extend({}, 0, size);
      if (size == 1 && found_.empty() && !smallest_fits()) return {};
    }
    std::ranges::stable_sort(found_, {}, [](const Found& f) { return f.way.slowdown + f.price; });
    return choose(most);
  }

 private:
  static constexpr std::size_t kLargest = 4;
  static constexpr int kPlanLimit = 600;

  struct Found {
    WayToFit way;
    double price = 0;
    std::vector<std::size_t> options;
  };

  // Whether any combination can fit: tries the options of each kind that save the most on their own.
  bool smallest_fits() const {
    std::map<std::string, std::pair<std::size_t, const Option*>> smallest;
    for (const auto& [option, bytes] : alone_)
      if (const auto at = smallest.find(option->about); at == smallest.end() || bytes < at->second.first)
        smallest[option->about] = {bytes, option};
    Config config = q_.config;
    for (const auto& [about, best] : smallest)
      for (const KeyChange& change : best.second->changes) assign_field(config, change.key, change.value);
    const std::optional<AnsweredPlan> plan = possible_plan(config);
    return plan && plan->memory.total() <= room_;
  }

  // The cheapest way of each kind, always including the cheapest one that does not change the result.
  std::vector<WayToFit> choose(std::size_t most) {
    std::vector<Found*> chosen;
    for (Found& f : found_)
      if (std::ranges::none_of(chosen, [&](const Found* c) { return kind_of(*c) == kind_of(f); })) chosen.push_back(&f);
    const auto same = std::ranges::find_if(chosen, [](const Found* f) { return f->way.same_result; });
    if (same != chosen.end() && std::cmp_greater_equal(same - chosen.begin(), most))
      std::rotate(chosen.begin() + static_cast<std::ptrdiff_t>(most) - 1, same, same + 1);
    std::vector<WayToFit> ways;
    for (Found* f : chosen)
      if (ways.size() < most) ways.push_back(std::move(f->way));
    return ways;
  }

  std::size_t kinds() const {
    std::set<std::vector<std::string>> kinds;
    for (const Found& f : found_) kinds.insert(kind_of(f));
    return kinds.size();
  }

  std::vector<std::string> kind_of(const Found& f) const {
    std::vector<std::string> kind{f.way.costs};
    for (const std::size_t i : f.options) kind.push_back(options_[i].about);
    return kind;
  }

  bool is_now(const Option& o) const {
    const Json& value = o.changes.front().value;
    return o.changes.size() == 1 &&
           value == (now_.policy.whole_blocks() && now_.policy.group() == 1 ? Json(true) : Json(now_.policy.name()));
  }

  void extend(std::vector<std::size_t> chosen, std::size_t from, std::size_t size) {
    if (chosen.size() == size) return attempt(chosen);
    for (std::size_t i = from; i < options_.size(); ++i) {
      const bool taken =
          std::ranges::any_of(chosen, [&](std::size_t c) { return options_[c].about == options_[i].about; });
      if (taken || tried_ >= kPlanLimit) continue;
      std::vector<std::size_t> longer = chosen;
      longer.push_back(i);
      extend(std::move(longer), i + 1, size);
    }
  }

  // Whether fewer changes or a larger micro-batch already fit.
  bool is_more_than_needed(const std::vector<std::size_t>& chosen) const {
    return std::ranges::any_of(found_, [&](const Found& f) {
      return std::ranges::all_of(f.options, [&](std::size_t needed) {
        return std::ranges::any_of(chosen, [&](std::size_t c) {
          return c == needed || (options_[c].about == "batch" && options_[needed].about == "batch" && c > needed);
        });
      });
    });
  }

  // Empty if the model or the device does not support the changes.
  std::optional<AnsweredPlan> possible_plan(const Config& config) const {
    try {
      return plan_of(q_, config);
    } catch (const Error& e) {  // an unsupported change
      if (e.kind() == ErrorKind::stopped) throw;
      return {};
    }
  }

  void attempt(const std::vector<std::size_t>& chosen) {
    if (is_more_than_needed(chosen)) return;
    ++tried_;
    Config config = q_.config;
    Found found{.options = chosen};
    for (const std::size_t i : chosen) {
      for (const KeyChange& change : options_[i].changes) {
        if (!assign_field(config, change.key, change.value).error.empty()) return;
        found.way.changes.push_back(change);
      }
      found.price += options_[i].price;
      if (options_[i].price > 0) found.way.same_result = false;
      if (!options_[i].costs.empty()) found.way.costs += (found.way.costs.empty() ? "" : "; ") + options_[i].costs;
    }
    const std::optional<AnsweredPlan> plan = possible_plan(config);
    if (plan && chosen.size() == 1) alone_.emplace_back(&options_[chosen.front()], plan->memory.total());
    if (!plan || plan->memory.total() > room_ || plan->memory.total() >= now_.memory.total()) return;
    if (!q_.supported(config)) return;
    found.way.bytes = plan->memory.total();
    found.way.slowdown = plan->time.usual.seconds() / now_.time.usual.seconds();
    found_.push_back(std::move(found));
  }

  const PlanQuestion& q_;
  std::size_t room_;
  AnsweredPlan now_;
  std::vector<Option> options_;
  std::vector<Found> found_;
  std::vector<std::pair<const Option*, std::size_t>> alone_;  // memory in bytes with a single option
  int tried_ = 0;
};

}  // namespace

std::string text_of(const std::vector<KeyChange>& changes) {
  std::string text;
  for (const KeyChange& c : changes)
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", c.key,
                        c.value.is_string() ? c.value.get<std::string>() : c.value.dump());
  return text;
}

Json json_of(const std::vector<KeyChange>& changes) {
  Json json = Json::object();
  for (const KeyChange& c : changes) json[c.key] = c.value;
  return json;
}

AnsweredPlan plan_of(const PlanQuestion& q, const Config& config) {
  const ModelSetup setup = set_up_model(q.compute, training_request(config));
  PlannedRun run = planned_run(config, *setup.model, q.work(config), q.target);
  const RecomputePolicy policy = settle_policy(run, config.training.gradient_checkpointing.policy);
  choose_copies(run, policy);
  run.choice.recompute = {policy, run.inputs};
  return {.memory = memory_plan(run), .policy = policy, .time = step_time(run, q.step_work(config), q.speed)};
}

std::vector<WayToFit> ways_to_fit(const PlanQuestion& question, std::size_t room, std::size_t most) {
  return Search(question, room).run(most);
}

}  // namespace qtrain
