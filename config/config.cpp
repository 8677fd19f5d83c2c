#include "config/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "config/check.h"
#include "config/dialect_table.h"
#include "config/fields.h"
#include "config/hub_names.h"
#include "config/keys.h"
#include "config/named_files.h"
#include "config/presets.h"
#include "config/reading.h"
#include "config/settling.h"
#include "core/secrets.h"
#include "text/template/load.h"

namespace qtrain {
namespace {

/// Turns the text of a config into a ResolvedConfig. Problems are collected and reported together; their keys keep
/// their defaults. Throws for a document that is not a config.
class Loading {
 public:
  explicit Loading(ConfigDocument document) : document_(std::move(document)) {}

  ResolvedConfig run(const Overrides& overrides) {
    require_config(document_);
    document_.value = without_comments(document_.value);
    const DialectTable& dialect = choose_dialect(overrides);
    out_.dialect = dialect.name;
    draft_.folder = std::filesystem::path(document_.name).parent_path();
    read_settings(draft_, dialect, document_);
    for (const auto& [key, value] : overrides) override_setting(draft_, dialect, key, value);
    out_.hub_names = find_models(draft_);
    settle_pending(draft_, dialect, document_);
    apply(dialect);
    find_names_of_datasets();
    if (!diagnostics().found_problems()) follow(out_, dialect);
    const bool answers = dialect.data.contains("answers_only") || out_.of_preset("assistant_only_loss");
    if (!diagnostics().found_problems() && answers) choose_loss_mask();
    follow(out_, dialect_table("rules"));
    check_values(out_);
    if (!diagnostics().found_problems()) describe_start(dialect);
    return std::move(out_);
  }

  /// Files that the config names and that `run` has read.
  const std::vector<std::filesystem::path>& named_files() const { return draft_.named_files; }

 private:
  Diagnostics& diagnostics() { return out_.diagnostics; }

  const DialectTable& choose_dialect(const Overrides& overrides) {
    Json probe = document_.value;
    for (const auto& [key, value] : overrides)
      if (key == "dialect" || key == "model_name_or_path") probe[key] = value;
    return detect_dialect(probe, document_.name);
  }

  void set_defaults(const Json& defaults, std::string_view source) {
    for (const auto& [key, value] : defaults.items()) {
      check(assign_field(out_.value, key, value).error.empty(), "a dialect has an impossible default");
      out_.origin[key] = fmt::format("default ({})", source);
    }
  }

  void apply(const DialectTable& dialect) {
    for (const auto name : field_names()) out_.origin[std::string(name)] = fmt::format("default ({})", dialect.name);
    set_defaults(dialect.object("defaults"), dialect.name);
    if (&dialect == &common_table()) {
      const Json& classes = common_table().object("adapter_defaults");
      const std::string adapter = draft_.adapter_class.empty() ? classes.begin().key() : draft_.adapter_class;
      set_defaults(classes.at(adapter), adapter);
    }
    for (const auto& [key, setting] : draft_.settings) {
      const auto [error, remedy] = assign_field(out_.value, key, setting.value);
      if (!error.empty()) draft_.problem(setting, " " + error, remedy);
      const bool renamed = setting.written != key;
      out_.origin[key] = renamed ? fmt::format("{} ({})", setting.place, setting.written) : setting.place;
    }
    apply_preset(out_);
  }

  void find_names_of_datasets() {
    try {
      for (NamedOnHub& named : find_datasets(out_.value)) out_.hub_names.push_back(std::move(named));
    } catch (const Error& e) {  // listed with the other problems
      diagnostics().problem(e.text());
    }
    for (const NamedOnHub& named : out_.hub_names)
      if (std::string& origin = out_.origin[named.key]; named.place)
        origin += fmt::format(": {}, commit {}", named.name.text(), named.place->commit);
  }

  /// Without a chat template in the model's folder, rows have no roles, and completion_only_loss marks the answers.
  void choose_loss_mask() {
    const ModelSection& m = out_.value.model;
    bool& by_roles = out_.value.data.assistant_only_loss;
    const std::filesystem::path folder = m.tokenizer_name_or_path.value_or(m.model_name_or_path);
    std::error_code ignored;
    if (out_.given("assistant_only_loss") || !by_roles || m.chat_template_path) return;
    if (!std::filesystem::is_directory(folder, ignored) || has_chat_template(folder)) return;
    by_roles = false;
    if (!out_.given("completion_only_loss")) out_.value.data.completion_only_loss = true;
    diagnostics().note(
        {}, "the model's folder has no chat template: rows become plain text, and the loss is computed on completions");
  }

  /// The first line of a run: the dialect and the defaults in use.
  void describe_start(const DialectTable& dialect) {
    const DialectTable& common = common_table();
    Json known = known_values(out_);
    known["values"] = values_json(out_.value);
    known.update({{"document", document_.name}, {"dialect", dialect.name}, {"about", dialect.text("about")}});
    known.update({{"told", common.object("told")}, {"told_of_adapters", common.object("told_of_adapters")}});
    diagnostics().begin(filled(common.text("start"), known));
  }

  ConfigDocument document_;
  ResolvedConfig out_;
  Draft draft_{.diagnostics = out_.diagnostics};
};

ResolvedConfig without_problems(ConfigDocument document, const Overrides& overrides) {
  const std::string name = document.name;
  ResolvedConfig config = Loading(std::move(document)).run(overrides);
  if (config.diagnostics.found_problems()) fail_with(config.diagnostics.problems(), name);
  return config;
}

}  // namespace

ResolvedConfig parse_config(std::string_view text, std::string_view name, const Overrides& overrides) {
  return without_problems(parse_config_document(text, name), overrides);
}

ResolvedConfig load_config(const std::filesystem::path& file, const Overrides& overrides) {
  return without_problems(read_config_document(file), overrides);
}

std::vector<std::filesystem::path> files_read_with_config(const std::filesystem::path& file,
                                                          const Overrides& overrides) {
  Loading loading(read_config_document(file));
  (void)loading.run(overrides);
  return loading.named_files();
}

CheckedConfig check_config(const std::filesystem::path& file, const Overrides& overrides) {
  try {
    ResolvedConfig config = Loading(read_config_document(file)).run(overrides);
    return {.config = config, .problems = config.diagnostics.problems()};
  } catch (const Error& e) {  // a file that cannot be parsed has one problem
    return {.config = std::nullopt, .problems = {e.text()}};
  }
}

namespace {

// Names inside objects of a config are those of columns, layers and the like, not of secrets.
Json written_value(std::string_view key, const Json& value) {
  if (is_secret_key(key)) return is_unset(value) ? value : Json(kRedacted);
  return urls_without_credentials(value);
}

}  // namespace

Json resolved_json(const ResolvedConfig& config) {
  Json values = Json::object();
  const Json plain = values_json(config.value);
  for (const auto& [key, value] : plain.items())
    values[key] = {{"value", written_value(key, value)}, {"origin", config.origin.at(key)}};
  return {{"dialect", config.dialect},
          {"values", std::move(values)},
          {"ignored", config.diagnostics.ignored()},
          {"notes", config.diagnostics.notes()},
          {"warnings", config.diagnostics.warnings()}};
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
  const double steps = static_cast<double>(max_steps) * (t.warmup_steps > 0 ? t.warmup_steps : t.warmup_ratio);
  const bool down = t.warmup_rounding == "down";
  std::int64_t whole = static_cast<std::int64_t>(down ? std::floor(steps) : std::ceil(steps));
  if (down && whole == 1) whole = 2;
  return t.warmup_max_steps ? std::min(whole, *t.warmup_max_steps) : whole;
}

std::int64_t interval_steps(double steps, std::int64_t max_steps) {
  if (steps >= 1) return static_cast<std::int64_t>(steps);
  return static_cast<std::int64_t>(std::ceil(static_cast<double>(max_steps) * steps));
}

}  // namespace qtrain
