#include "config/config.h"

#include <cmath>

#include "config/check.h"
#include "config/fields.h"
#include "config/loading.h"

namespace qtrain {
namespace {

ResolvedConfig without_problems(ConfigDocument document, const Overrides& overrides) {
  const std::string name = document.name;
  ResolvedConfig config = resolve_config(std::move(document), overrides);
  if (config.judge.found_problems()) fail_with(config.judge.problems(), name);
  return config;
}

}  // namespace

ResolvedConfig parse_config(std::string_view text, std::string_view name, const Overrides& overrides) {
  return without_problems(parse_config_document(text, name), overrides);
}

ResolvedConfig load_config(const std::filesystem::path& file, const Overrides& overrides) {
  return without_problems(read_config_document(file), overrides);
}

CheckedConfig check_config(const std::filesystem::path& file, const Overrides& overrides) {
  try {
    ResolvedConfig config = resolve_config(read_config_document(file), overrides);
    return {.config = config, .problems = config.judge.problems()};
  } catch (const Error& e) {  // a file that cannot be parsed has one problem
    return {.config = std::nullopt, .problems = {e.text()}};
  }
}

Json resolved_json(const ResolvedConfig& config) {
  Json values = Json::object();
  const Json plain = values_json(config.value);
  for (const auto& [key, value] : plain.items()) values[key] = {{"value", value}, {"origin", config.origin.at(key)}};
  return {{"dialect", config.dialect},
          {"values", std::move(values)},
          {"ignored", config.judge.ignored()},
          {"notes", config.judge.notes()},
          {"warnings", config.judge.warnings()}};
}

OptimizerOptions optimizer_options(const TrainingSection& t) {
  return {.name = t.optim,
          .arguments = t.optim_args.value_or(""),
          .beta1 = t.adam_beta1,
          .beta2 = t.adam_beta2,
          .eps = t.adam_epsilon,
          .weight_decay = t.weight_decay,
          .seed = static_cast<std::uint64_t>(t.seed)};
}

std::int64_t warmup_steps(const TrainingSection& t, std::int64_t max_steps) {
  if (t.warmup_steps >= 1) return static_cast<std::int64_t>(t.warmup_steps);
  const double share = t.warmup_steps > 0 ? t.warmup_steps : t.warmup_ratio;
  return static_cast<std::int64_t>(std::ceil(static_cast<double>(max_steps) * share));
}

std::int64_t interval_steps(double steps, std::int64_t max_steps) {
  if (steps >= 1) return static_cast<std::int64_t>(steps);
  return static_cast<std::int64_t>(std::ceil(static_cast<double>(max_steps) * steps));
}

}  // namespace qtrain
