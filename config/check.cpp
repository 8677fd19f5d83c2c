#include "config/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>

#include "config/dialect_table.h"
#include "config/fields.h"
#include "config/keys.h"
#include "config/training_sources.h"
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

/// Collects contradictions; a place is where the user wrote the (first) key.
struct Checks {
  const ResolvedConfig& config;
  std::vector<ErrorText> problems = {};

  void require(Claim claim, const char* key, std::string cause, std::string remedy = {}) {
    if (claim.holds) return;
    problems.push_back({.cause = std::move(cause), .place = config.origin.at(key), .remedy = std::move(remedy)});
  }
  void of_rules(std::string_view part) {
    for (Rule& rule : rules_on(config, part))
      problems.push_back({.cause = rule.text, .place = config.origin.at(rule.key), .remedy = rule.remedy});
  }
  /// What another part of the program checks itself, by the key that its error names, or by the one given.
  void of_part(const std::function<void()>& part, const std::string& key = {}) {
    try {
      part();
    } catch (const Error& e) {  // adds the place
      const ErrorText& said = e.text();
      problems.push_back({.cause = (said.place.empty() ? "" : said.place + ": ") + said.cause,
                          .place = config.origin.at(key.empty() ? said.place : key),
                          .remedy = said.remedy});
    }
  }
};

/// The best checkpoint must be among those saved.
void check_best(Checks& c) {
  const TrainingSection& t = c.config.value.training;
  if (!t.load_best_model_at_end || t.eval_strategy != EvalStrategy::steps || t.save_strategy != SaveStrategy::steps)
    return;
  const double every = t.eval_steps.value_or(t.logging_steps), times = t.save_steps / every;
  c.require(std::abs(times - std::round(times)) < 1e-6 && times > 0.5 && (t.save_steps < 1) == (every < 1),
            "load_best_model_at_end",
            fmt::format("load_best_model_at_end needs save_steps ({}) to be a multiple of eval_steps ({})",
                        t.save_steps, every),
            "set save_steps to one of its multiples");
}

void check_sources(Checks& c) {
  const DataSection& d = c.config.value.data;
  const std::vector<DataSource> sources = training_sources(d);
  const auto with = [&](auto member) {
    return std::ranges::count_if(sources, [&](const DataSource& s) { return (s.*member).has_value(); });
  };
  const auto all = std::ssize(sources), fractions = with(&DataSource::fraction), weights = with(&DataSource::weight);
  c.require((fractions == 0 || fractions == all) && (weights == 0 || weights == all), "dataset_mixture",
            "some sources have a fraction or a weight, and others have none", "give it to all");
  c.require(weights == 0 || d.mix_strategy != MixStrategy::concatenate, "mix_strategy",
            "weights have no effect on sources that are concatenated", "leave mix_strategy out, or the weights");
}

void check_template(Checks& c) {
  const auto& date = c.config.value.model.template_date;
  c.require(!date || clock_on(*date), "template_date",
            fmt::format("template_date \"{}\" is not a day of the calendar", date.value_or("")),
            "write it as 2026-07-26");
}

void check_adapter(Checks& c) {
  const LoraSection& l = c.config.value.lora;
  for (const auto& [module, rank] : l.rank_pattern.items())
    c.require(rank.is_number_integer() && rank > 0 && rank <= LoraConfig::kMaxRank, "rank_pattern",
              fmt::format("the rank of \"{}\" is {}", module, rank.dump()),
              fmt::format("give an integer from 1 to {}", LoraConfig::kMaxRank));
  for (const auto& [module, alpha] : l.alpha_pattern.items())
    c.require(alpha.is_number() && alpha > 0, "alpha_pattern",
              fmt::format("the alpha of \"{}\" is {}", module, alpha.dump()), "give a number above 0");
}

void check_quantization(Checks& c) {
  for (const std::string& name : c.config.value.quant.llm_int8_skip_modules)
    c.require(is_module_name(name), "llm_int8_skip_modules",
              fmt::format("llm_int8_skip_modules: \"{}\" is not a name of a module", name),
              "give names or prefixes, such as \"mlp.up_proj\" or \"model.layers.0\"");
}

/// Whether there is an optimizer of that name is asked where a run needs it.
void check_optimizer(Checks& c) {
  const OptimizerOptions options = optimizer_options(c.config.value.training);
  if (find_optimizer(options.name)->rule.empty()) return;
  make_rule(options);
  const Config& config = c.config.value;
  c.require(!trains_bf16(options) || !(config.lora.use_peft || config.model.adapter_name_or_path), "optim_args",
            "stochastic_rounding is about trained weights in bfloat16, and an adapter is float32",
            "leave it out, or train all weights (use_peft false)");
}

// What is switched off in so many words needs no remark: dumps of all arguments have the rest too.
void judge_adapter(ResolvedConfig& config) {
  const Config& c = config.value;
  if (config.given("use_peft") || c.lora.use_peft || c.model.adapter_name_or_path) return;
  std::vector<std::string> keys;
  for (const Field& f : fields())
    if (f.section == "LoRA" && config.given(f.name) && !says_nothing(f.read(c))) keys.push_back(f.name);
  if (keys.empty()) return;
  for (const std::string& key : keys) {
    Remark ignored = ignored_key(config, key, "use_peft is not true");
    ignored.level = RemarkLevel::silent;
    config.judge.say(std::move(ignored));
  }
  config.judge.say(
      {.level = RemarkLevel::warning,
       .origin = config.origin.at(keys.front()),
       .text = fmt::format("LoRA keys are given but use_peft is not true: all weights will be trained ({})",
                           fmt::join(keys, ", "))});
}

void judge_values(ResolvedConfig& config) {
  judge_adapter(config);
  for (const Rule& rule : rules_on(config, "without_effect")) no_effect(config, rule.key, rule.text);
  for (const Rule& rule : rules_on(config, "told"))
    if (config.given(rule.key)) config.judge.note(config.origin.at(rule.key), rule.text);
}

bool meets(const Json& value, const Json& condition, const Json& values) {
  if (condition.is_array()) return std::ranges::find(condition, value) != condition.end();
  if (!condition.is_object()) return value == condition;
  const std::string kind = condition.begin().key();
  const Json& operand = condition.begin().value();
  if (kind == "not") return !meets(value, operand, values);
  if (kind == "not_below") return value.is_number() && value >= values.at(operand.get_ref<const std::string&>());
  if (!value.is_number() || value <= operand) return false;
  return kind == "above" || std::floor(value.get<double>()) != value;
}

/// The text with values in it: words without quotes.
std::string filled(std::string_view text, const Json& values) {
  std::string out;
  for (std::size_t open = 0; (open = text.find('{')) != text.npos;) {
    const std::size_t close = text.find('}', open);
    const Json& value = values.at(std::string(text.substr(open + 1, close - open - 1)));
    out += text.substr(0, open);
    out += value.is_string()         ? value.get<std::string>()
           : value.is_number_float() ? fmt::format("{}", value.get<double>())
                                     : show(value);
    text.remove_prefix(close + 1);
  }
  return out + std::string(text);
}

bool holds(const Json& when, const Json& values) {
  if (when.is_array()) return std::ranges::any_of(when, [&](const Json& each) { return holds(each, values); });
  return std::ranges::all_of(when.items(), [&](const auto& c) { return meets(values.at(c.key()), c.value(), values); });
}

}  // namespace

void complete_config(ResolvedConfig& config) {
  expand_paths(config.value);
  judge_values(config);
}

std::vector<ErrorText> contradictions(const ResolvedConfig& config) {
  Checks checks{config};
  checks.of_rules("refused");
  check_template(checks);
  check_adapter(checks);
  check_quantization(checks);
  checks.of_part([&] { check_sources(checks); }, config.value.data.dataset_mixture.empty() ? "" : "dataset_mixture");
  check_best(checks);
  const TrainingSection& t = config.value.training;
  checks.of_part([&] {  // total_steps do not matter for arguments
    make_schedule({.kind = t.lr_scheduler_type,
                   .learning_rate = t.learning_rate,
                   .total_steps = 1'000,
                   .kwargs = t.lr_scheduler_kwargs});
  });
  checks.of_part([&] { check_optimizer(checks); });
  return std::move(checks.problems);
}

std::vector<ErrorText> unsupported(const ResolvedConfig& config) {
  const Config& c = config.value;
  Checks checks{config};
  checks.of_rules("unsupported");
  if (c.run.device == DeviceChoice::cuda)
    checks.require(cuda_problem().empty(), "device", "device cuda: " + cuda_problem(), "set device to cpu or auto");
  checks.require(!find_optimizer(c.training.optim)->rule.empty(), "optim",
                 fmt::format("optim \"{}\" is not available", c.training.optim),
                 fmt::format("use one of {}", optimizer_summary()));
  for (const std::string& tracker : c.training.report_to)
    checks.require(
        tracker == "tensorboard", "report_to", fmt::format("report_to \"{}\": nothing can be sent there", tracker),
        "set report_to to tensorboard or none: metrics are in output_dir either way, in metrics.jsonl and as event "
        "files in runs/");
  return std::move(checks.problems);
}

void require_supported(const ResolvedConfig& config) {
  const auto problems = unsupported(config);
  if (!problems.empty()) fail_with(problems, "config");
}

bool applies(const Json& rule, const ResolvedConfig& config, const Json& values) {
  const auto given = [&](const std::string& key) { return config.given(key); };
  return holds(rule.value("when", Json::object()), values) &&
         std::ranges::all_of(rule.value("given", Json::array()), given) &&
         std::ranges::none_of(rule.value("not_given", Json::array()), given);
}

std::vector<Rule> rules_on(const ResolvedConfig& config, std::string_view part) {
  const Json values = values_json(config.value);
  std::vector<Rule> rules;
  for (const Json& rule : dialect_table("rules").object(part))
    if (applies(rule, config, values))
      rules.push_back({rule.at("key"), filled(rule.at("text").get<std::string>(), values), rule.value("remedy", "")});
  return rules;
}

}  // namespace qtrain
