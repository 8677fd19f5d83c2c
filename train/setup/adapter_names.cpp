#include "train/setup/adapter_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "config/keys.h"
#include "core/error.h"
#include "model/families/family.h"
#include "train/setup/model_setup.h"

namespace qtrain {
namespace {

/// Modules that can have an adapter.
std::vector<std::string> adaptable_modules(const ModelConfig& model) {
  std::vector<std::string> modules{std::string(kEmbeddingName), std::string(kHeadName)};
  for (std::string& module : linear_modules(model)) modules.push_back(std::move(module));
  // PEFT does not rename experts that files store as one tensor, so those names match no layer.
  if (model.experts && model.experts->named_apart)
    for (std::string& module : expert_modules(model)) modules.push_back(std::move(module));
  return modules;
}

/// All dot-separated suffixes of the module names: the names that a config may use.
std::vector<std::string_view> name_ends(const std::vector<std::string>& modules) {
  std::set<std::string_view> ends;
  for (const std::string& module : modules)
    for (std::string_view end = module;; end.remove_prefix(end.find('.') + 1)) {
      ends.insert(end);
      if (end.find('.') == std::string_view::npos) break;
    }
  return {ends.begin(), ends.end()};
}

/// Names that rank patterns are matched against: adapted modules, and router and expert parameters by their PEFT names.
std::vector<std::string> adapted_names(const LoraConfig& lora, const ModelConfig& model) {
  const LoraConfig as_peft = for_model(lora, model);
  std::vector<std::string> names;
  for (std::string& module : adaptable_modules(model))
    if (is_target(as_peft, module)) names.push_back(std::move(module));
  if (!model.experts) return names;
  for (std::string& parameter : expert_parameters(model))
    if (names_parameter(as_peft, parameter)) names.push_back(std::move(parameter));
  return names;
}

class NameCheck {
 public:
  NameCheck(const LoraConfig& lora, const ModelConfig& model)
      : lora_(lora), layers_(model.layers), modules_(adaptable_modules(model)), adapted_(adapted_names(lora, model)) {}

  void run() {
    const bool pattern = lora_.targets.size() == 1 && is_module_pattern(lora_.targets.front());
    if (!pattern)
      for (const std::string& name : lora_.targets)
        if (!means_layer(name)) complain("lora_target_modules", name, "layer of the model");
    check_exclusions();
    if (pattern && !lora_.layers_to_transform.empty())
      problems_.push_back(
          "layers_to_transform cannot be combined with a regular expression in lora_target_modules, as in PEFT");
    for (const std::int64_t layer : lora_.layers_to_transform)
      if (layer < 0 || layer >= layers_)
        problems_.push_back(
            fmt::format("layers_to_transform: there is no layer {}; the model's are 0 to {}", layer, layers_ - 1));
    for (const auto& [pattern, rank] : lora_.rank_pattern)
      if (!matches_target(pattern)) complain("rank_pattern", pattern, "layer with an adapter");
    for (const auto& [pattern, alpha] : lora_.alpha_pattern)
      if (!matches_target(pattern)) complain("alpha_pattern", pattern, "layer with an adapter");
    if (problems_.empty()) return;
    fail(ErrorKind::usage, {.cause = fmt::format("{}", fmt::join(problems_, "; ")),
                            .remedy = "correct or remove what would have no effect"});
  }

 private:
  // Whether an entry of the list matches a layer, including one that is trained in full.
  bool means_layer(const std::string& name) const {
    return std::ranges::any_of(modules_, [&](const std::string& module) { return means_module(name, module); });
  }

  // Each entry must leave out a layer that would otherwise be adapted.
  void check_exclusions() {
    LoraConfig all = lora_;
    all.exclude_modules.clear();
    all.exclude_pattern.clear();
    const auto leaves_out = [&](LoraConfig some) {
      return std::ranges::any_of(modules_,
                                 [&](const std::string& m) { return is_target(all, m) && !is_target(some, m); });
    };
    std::vector<std::string> names = lora_.exclude_modules;
    if (!lora_.exclude_pattern.empty()) names.push_back(lora_.exclude_pattern);
    for (const std::string& name : names) {
      LoraConfig some = all;
      (lora_.exclude_pattern.empty() ? some.exclude_modules.emplace_back() : some.exclude_pattern) = name;
      if (!leaves_out(some)) complain("exclude_modules", name, "layer of lora_target_modules");
    }
  }

  // Whether a pattern would change the rank of any target.
  bool matches_target(const std::string& pattern) const {
    const LoraConfig alone{.r = 1, .rank_pattern = {{pattern, 2}}};
    return std::ranges::any_of(adapted_, [&](const std::string& name) { return alone.rank_of(name) == 2; });
  }

  std::string hint_for(const char* key, const std::string& name) const {
    const bool of_model = std::string_view(key).ends_with("_modules");
    if (of_model && is_module_pattern(name) && name != lora_.exclude_pattern)
      return " (a list contains names; give a regular expression as a single string)";
    const std::string_view near =
        nearest(name, name_ends(std::string_view(key) == "lora_target_modules" ? modules_ : adapted_));
    return near.empty() || near == name ? "" : fmt::format(" (did you mean \"{}\"?)", near);
  }

  void complain(const char* key, const std::string& name, const char* what) {
    const std::string hint = hint_for(key, name);
    problems_.push_back(fmt::format("{}: \"{}\" matches no {}{}", key, name, what, hint));
  }

  const LoraConfig& lora_;
  std::int64_t layers_;
  std::vector<std::string> modules_, adapted_;
  std::vector<std::string> problems_;
};

bool same_on_layers(const LoraConfig& a, const LoraConfig& b, const ModelConfig& model) {
  if (model.experts)
    for (const std::string& parameter : expert_parameters(model))
      if (names_parameter(b, parameter) &&
          (a.rank_of(parameter) != b.rank_of(parameter) || a.scale_of(parameter) != b.scale_of(parameter)))
        return false;
  return std::ranges::all_of(adaptable_modules(model), [&](const std::string& module) {
    if (!is_target(a, module) && !is_target(b, module)) return true;
    return is_target(a, module) == is_target(b, module) && a.rank_of(module) == b.rank_of(module) &&
           a.scale_of(module) == b.scale_of(module);
  });
}

}  // namespace

void require_adapter_names(const LoraConfig& lora, const ModelConfig& model) {
  NameCheck(lora, model).run();
}

std::vector<std::string> idle_parameters(const LoraConfig& lora, const ModelConfig& model) {
  const std::vector<std::string> parameters = model.experts ? expert_parameters(model) : std::vector<std::string>{};
  std::vector<std::string> idle;
  for (const std::string& target : lora.target_parameters)
    if (std::ranges::none_of(parameters, [&](const std::string& p) { return means_module(target, p); }))
      idle.push_back(target);
  return idle;
}

void check_adapter_keys(const ResolvedConfig& config, const LoraConfig& adapter, const ModelConfig& model) {
  const LoraConfig asked = for_model(lora_from(config.value.lora), model);
  LoraConfig named = lora_from(config.value.lora);
  if (!config.given("lora_target_modules")) named.targets = adapter.targets;
  const char* naming[] = {"lora_target_modules", "exclude_modules", "layers_to_transform", "rank_pattern",
                          "alpha_pattern"};
  if (std::ranges::any_of(naming, [&](const char* key) { return config.given(key); }))
    require_adapter_names(named, model);
  const auto require = [&](const char* key, bool same) {
    if (config.given(key) && !same)
      fail(ErrorKind::usage, {.cause = fmt::format("\"{}\" disagrees with the adapter in adapter_name_or_path", key),
                              .remedy = "remove the key, or start a new adapter"});
  };
  const auto require_on_layers = [&](const char* key, auto LoraConfig::*... settings) {
    LoraConfig changed = adapter;
    ((changed.*settings = asked.*settings), ...);
    require(key, same_on_layers(changed, adapter, model));
  };
  require("lora_r", asked.r == adapter.r);
  require("lora_alpha", asked.alpha == adapter.alpha);
  require("lora_dropout", asked.dropout == adapter.dropout);
  require("use_rslora", asked.rslora == adapter.rslora);
  require("use_dora", asked.dora == adapter.dora);
  require("init_lora_weights", !asked.init.reads_base());
  require("lora_modules_to_save", std::ranges::is_permutation(asked.modules_to_save, adapter.modules_to_save));
  require("lora_target_modules", std::ranges::is_permutation(asked.target_parameters, adapter.target_parameters));
  require_on_layers("lora_target_modules", &LoraConfig::targets);
  require_on_layers("exclude_modules", &LoraConfig::exclude_modules, &LoraConfig::exclude_pattern);
  require_on_layers("layers_to_transform", &LoraConfig::layers_to_transform, &LoraConfig::layers_pattern);
  require_on_layers("layers_pattern", &LoraConfig::layers_to_transform, &LoraConfig::layers_pattern);
  require_on_layers("rank_pattern", &LoraConfig::rank_pattern);
  require_on_layers("alpha_pattern", &LoraConfig::alpha_pattern);
}

}  // namespace qtrain
