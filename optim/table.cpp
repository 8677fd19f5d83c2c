#include "optim/table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "core/error.h"
#include "optim/rules.h"

namespace qtrain {
namespace {

/// A rule, its factory, and the keys of `optim_args` that it accepts.
struct NamedRule {
  std::string_view name;
  std::unique_ptr<UpdateRule> (*make)(const OptimizerOptions&, const OptimizerArguments&);
  std::array<std::string_view, 4> arguments = {};

  std::span<const std::string_view> keys() const {
    return std::span(arguments).first(
        static_cast<std::size_t>(std::find(arguments.begin(), arguments.end(), "") - arguments.begin()));
  }
};

constexpr NamedRule kRules[] = {
    {"adamw", make_adamw, {kStochasticRounding}},
    {"adamw_8bit", make_adamw_8bit},
    {"lion", make_lion},
    {"lion_8bit", make_lion_8bit},
    {"sgd", make_sgd, {"momentum", "dampening", "nesterov"}},
    {"adafactor", make_adafactor},
    {"muon", make_muon, {"momentum", "nesterov", "ns_steps", "adjust_lr_fn"}},
};

constexpr NamedOptimizer kOptimizers[] = {
    {"adamw_torch_fused", "adamw"},
    {"adamw_torch", "adamw"},
    {"adamw_torch_xla", "adamw"},
    {"adamw_torch_npu_fused", "adamw"},
    {"adamw_apex_fused", "adamw"},
    {"adamw_hf", "adamw"},
    {"paged_adamw_32bit", "adamw", Pages::where_needed},
    {"paged_adamw", "adamw", Pages::where_needed},
    {"adamw_8bit", "adamw_8bit"},
    {"adamw_bnb_8bit", "adamw_8bit"},
    {"paged_adamw_8bit", "adamw_8bit", Pages::where_needed},
    {"lion_32bit", "lion"},
    {"paged_lion_32bit", "lion", Pages::where_needed},
    {"lion_8bit", "lion_8bit"},
    {"paged_lion_8bit", "lion_8bit", Pages::where_needed},
    {"sgd", "sgd"},
    {"adafactor", "adafactor"},
    {"muon", "muon"},
    {"adamw_anyprecision"},
    {"adamw_torch_4bit"},
    {"adamw_torch_8bit"},
    {"ademamix"},
    {"ademamix_8bit"},
    {"paged_ademamix_32bit"},
    {"paged_ademamix_8bit"},
    {"adagrad"},
    {"rmsprop"},
    {"rmsprop_bnb"},
    {"rmsprop_bnb_8bit"},
    {"rmsprop_bnb_32bit"},
    {"galore_adamw"},
    {"galore_adamw_8bit"},
    {"galore_adafactor"},
    {"galore_adamw_layerwise"},
    {"galore_adamw_8bit_layerwise"},
    {"galore_adafactor_layerwise"},
    {"lomo"},
    {"adalomo"},
    {"grokadamw"},
    {"schedule_free_radam"},
    {"schedule_free_adamw"},
    {"schedule_free_sgd"},
    {"apollo_adamw"},
    {"apollo_adamw_layerwise"},
    {"stable_adamw"},
};

constexpr auto kNames = [] {
  std::array<std::string_view, std::size(kOptimizers)> names{};
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = kOptimizers[i].name;
  return names;
}();

}  // namespace

std::vector<std::string_view> available_optimizers() {
  std::vector<std::string_view> names;
  for (const NamedOptimizer& o : kOptimizers)
    if (!o.rule.empty()) names.push_back(o.name);
  return names;
}

std::string_view optimizer_summary() {
  static const std::string kSummary = [] {
    std::vector<std::string_view> first;
    std::string_view rule;
    for (const NamedOptimizer& o : kOptimizers) {
      if (!o.rule.empty() && o.rule != rule) first.push_back(o.name);
      rule = o.rule;
    }
    return fmt::format("{} (other names of these are in docs/optimizers.md)", fmt::join(first, ", "));
  }();
  return kSummary;
}

std::span<const std::string_view> optimizer_names() {
  return kNames;
}

const NamedOptimizer* find_optimizer(std::string_view name) {
  for (const NamedOptimizer& o : kOptimizers)
    if (o.name == name) return &o;
  return nullptr;
}

bool trains_bf16(const OptimizerOptions& options) {
  const NamedOptimizer* optimizer = find_optimizer(options.name);
  return optimizer && optimizer->rule == "adamw" &&
         OptimizerArguments(options.arguments).flag(kStochasticRounding, false);
}

bool multiplies_bf16(const OptimizerOptions& options) {
  const NamedOptimizer* optimizer = find_optimizer(options.name);
  return optimizer && optimizer->rule == "muon";
}

std::unique_ptr<UpdateRule> make_rule(const OptimizerOptions& options) {
  const NamedOptimizer* optimizer = find_optimizer(options.name);
  if (optimizer)
    for (const NamedRule& rule : kRules)
      if (rule.name == optimizer->rule) {
        const OptimizerArguments arguments(options.arguments);
        arguments.allow(options.name, rule.keys());
        return rule.make(options, arguments);
      }
  fail(ErrorKind::usage, {.cause = fmt::format("optim \"{}\" is not available", options.name),
                          .place = "optim",
                          .remedy = fmt::format("use one of {}", optimizer_summary())});
}

}  // namespace qtrain
