#include "config/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>

#include "config/fields.h"
#include "config/keys.h"
#include "config/training_sources.h"
#include "config/yaml.h"
#include "core/device.h"
#include "model/lora.h"
#include "quant/bnb.h"
#include "text/template/date.h"

namespace qtrain {
namespace {

std::string expand_home(const std::string& path) {
  const char* home = std::getenv("HOME");
  if (!home || (path != "~" && !path.starts_with("~/"))) return path;
  return home + path.substr(1);
}

void expand_paths(Config& c) {
  for (auto* paths : {&c.data.dataset_name, &c.data.eval_dataset_name})
    for (std::string& p : *paths) p = expand_home(p);
  for (Json& entry : c.data.dataset_mixture) {
    Json& path = entry.is_object() && entry.contains("path") ? entry["path"] : entry;
    if (path.is_string()) path = expand_home(path.get<std::string>());
  }
  for (auto* path : {&c.model.model_name_or_path, &c.training.output_dir, &c.training.resume_from_checkpoint})
    *path = expand_home(*path);
  for (auto* path : {&c.model.adapter_name_or_path, &c.model.tokenizer_name_or_path, &c.model.chat_template_path})
    if (*path) **path = expand_home(**path);
}

/// Checks of values. Every remark gets the place of a key.
struct Checks {
  const ResolvedConfig& config;
  Diagnostics& diagnostics;
  Json facts = Json::object();  ///< that rules can use in addition to the values

  void require(Claim claim, const std::string& key, std::string cause, std::string remedy = {}) {
    if (!claim.holds) diagnostics.problem(config.origin.at(key), std::move(cause), std::move(remedy));
  }
  /// Applies a part of rules.yaml. Remarks other than problems are only made about keys that were given.
  void apply_rules(std::string_view part, RemarkLevel level) {
    Json values = known_values(config);
    values.update(facts);
    for (const Json& rule : dialect_table("rules").object(part)) {
      const std::string key = rule.at("key");
      if (level != RemarkLevel::problem && !config.given(key)) continue;
      const Json members = rule.contains("each") ? values.at(rule["each"].get<std::string>()) : Json::array({nullptr});
      for (const auto& [name, value] : members.items()) {
        values.update({{"name", name}, {"value", value}});
        if (!rule_applies(rule, values)) continue;
        Remark remark{.level = level,
                      .origin = config.origin.at(key),
                      .text = filled(rule.at("text").get_ref<const std::string&>(), values),
                      .remedy = filled(rule.value("remedy", ""), values)};
        if (part == "without_effect") remark.ignored = key, remark.value = values.at(key);
        diagnostics.say(std::move(remark));
      }
    }
  }
  /// Runs a check of another part of the program; its error gets the place of the key that it names, or of `key`.
  void run_check(const std::function<void()>& part, const std::string& key = {}) {
    try {
      part();
    } catch (const Error& e) {  // adds the place
      const ErrorText& said = e.text();
      diagnostics.problem(config.origin.at(key.empty() ? said.place : key),
                          (said.place.empty() ? "" : said.place + ": ") + said.cause, said.remedy);
    }
  }
};

void check_sources(Checks& c) {
  const DataSection& d = c.config.value.data;
  const std::vector<DataSource> sources = training_sources(d);
  const auto with = [&](auto member) {
    return std::ranges::count_if(sources, [&](const DataSource& s) { return (s.*member).has_value(); });
  };
  const auto all = std::ssize(sources), fractions = with(&DataSource::fraction), weights = with(&DataSource::weight);
  c.require((fractions == 0 || fractions == all) && (weights == 0 || weights == all), "dataset_mixture",
            "some sources have a fraction or a weight, but others have none", "give it to all");
  c.require(weights == 0 || d.mix_strategy != MixStrategy::concatenate, "mix_strategy",
            "weights have no effect when sources are concatenated", "remove mix_strategy, or the weights");
}

void check_quantization(Checks& c) {
  for (const std::string& name : c.config.value.quant.llm_int8_skip_modules)
    c.require(is_module_name(name), "llm_int8_skip_modules",
              fmt::format("llm_int8_skip_modules: \"{}\" is not a module name", name),
              "give names or prefixes, such as \"mlp.up_proj\" or \"model.layers.0\"");
}

/// Whether the optimizer exists is checked in `unsupported`.
void check_optimizer(Checks& c) {
  const OptimizerOptions options = optimizer_options(c.config.value.training);
  if (find_optimizer(options.name)->rule.empty()) return;
  make_rule(options);
  const Config& config = c.config.value;
  c.require(!trains_bf16(options) || !(config.lora.use_peft || config.model.adapter_name_or_path), "optim_args",
            "stochastic_rounding applies to bfloat16 weights, but an adapter is float32",
            "remove it, or train all weights (use_peft false)");
}

// Warns of LoRA keys that have no effect, unless use_peft is given: dumps of all arguments contain the other keys too.
void warn_of_unused_lora_keys(ResolvedConfig& config) {
  const Config& c = config.value;
  if (config.given("use_peft") || c.lora.use_peft || c.model.adapter_name_or_path) return;
  std::vector<std::string> keys;
  for (const Field& f : fields())
    if (f.section == "LoRA" && config.given(f.name) && !is_unset(f.read(c))) keys.push_back(f.name);
  if (keys.empty()) return;
  for (const std::string& key : keys) {
    Remark ignored = ignored_key(config, key, "use_peft is not true");
    ignored.level = RemarkLevel::silent;
    config.diagnostics.say(std::move(ignored));
  }
  config.diagnostics.say(
      {.level = RemarkLevel::warning,
       .origin = config.origin.at(keys.front()),
       .text = fmt::format("LoRA keys are given but use_peft is not true: all weights will be trained ({})",
                           fmt::join(keys, ", "))});
}

/// Contradictory combinations of values.
void check_contradictions(Checks& checks) {
  const Config& config = checks.config.value;
  checks.apply_rules("refused", RemarkLevel::problem);
  check_quantization(checks);
  checks.run_check([&] { named_splits("dataset_test_split", config.data.dataset_test_split); });
  checks.run_check([&] { check_sources(checks); }, config.data.dataset_mixture.empty() ? "" : "dataset_mixture");
  const TrainingSection& t = config.training;
  checks.run_check([&] {  // any total_steps will do to check the arguments
    make_schedule({.kind = t.lr_scheduler_type,
                   .learning_rate = t.learning_rate,
                   .total_steps = 1'000,
                   .kwargs = t.lr_scheduler_kwargs});
  });
  checks.run_check([&] { check_optimizer(checks); });
}

}  // namespace

Json known_values(const ResolvedConfig& config) {
  Json values = values_json(config.value), given = Json::array();
  for (const auto& [key, origin] : config.origin)
    if (config.given(key)) given.push_back(key);
  values["given"] = std::move(given);
  return values;
}

bool rule_applies(const Json& rule, const Json& values) {
  return !rule.contains("when") ||
         !filled(fmt::format("{{% if {} %}}yes{{% endif %}}", rule["when"].get<std::string>()), values).empty();
}

void follow(ResolvedConfig& config, const DialectTable& table) {
  for (const Json& rule : table.object("then")) {
    const Json values = known_values(config);
    if (!rule_applies(rule, values)) continue;
    const Json notes = rule.value("note", Json::object()), settings = rule.value("set", Json::object());
    for (const auto& [key, text] : notes.items())
      if (config.given(key)) config.diagnostics.note(config.origin.at(key), text);
    for (const auto& [key, value] : settings.items()) {
      if ((config.given(key) || config.of_preset(key)) && !rule.contains("anyway")) continue;
      const std::string text = value.is_string() ? value.get<std::string>() : "";
      assign_field(
          config.value, key,
          text.starts_with('=') ? yaml_plain_value(filled(fmt::format("{{{{{}}}}}", text.substr(1)), values)) : value);
    }
  }
}

void check_values(ResolvedConfig& config) {
  expand_paths(config.value);
  warn_of_unused_lora_keys(config);
  const auto& date = config.value.model.template_date;
  Checks checks{
      config, config.diagnostics, {{"max_rank", LoraConfig::kMaxRank}, {"date_is_known", !date || clock_on(*date)}}};
  checks.apply_rules("without_effect", RemarkLevel::note);
  checks.apply_rules("told", RemarkLevel::note);
  if (!config.diagnostics.found_problems()) check_contradictions(checks);
}

std::vector<ErrorText> unsupported(const ResolvedConfig& config, const RunPlace& place) {
  const RunSection& run = config.value.run;
  const bool asks = !place.device && run.device != DeviceChoice::cpu;  // otherwise the driver is not loaded
  const std::string problem = asks ? cuda_problem() : "";
  const bool found = asks && run.device == DeviceChoice::automatic && problem.empty() && !cuda_is_emulated();
  const bool on_gpu = place.device ? *place.device == DeviceKind::cuda : run.device == DeviceChoice::cuda || found;
  Diagnostics diagnostics;
  Checks checks{config,
                diagnostics,
                {{"on_gpu", on_gpu}, {"cuda_problem", problem}, {"ranks", place.ranks.value_or(run.ranks())}}};
  checks.facts.update({{"optimizers", available_optimizers()}, {"optimizer_summary", optimizer_summary()}});
  checks.apply_rules("unsupported", RemarkLevel::problem);
  return diagnostics.problems();
}

bool is_supported(ResolvedConfig config, const Config& values, DeviceKind device) {
  config.value = values;
  return unsupported(config, {.device = device}).empty();
}

void require_supported(const ResolvedConfig& config, const RunPlace& place) {
  const auto problems = unsupported(config, place);
  if (!problems.empty()) fail_with(problems, "config");
}

}  // namespace qtrain
