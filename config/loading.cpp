#include "config/loading.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/check.h"
#include "config/dialect_table.h"
#include "config/dialects/axolotl.h"
#include "config/dialects/llamafactory.h"
#include "config/fields.h"
#include "config/flatten.h"
#include "config/keys.h"
#include "config/launchers.h"
#include "config/translate.h"
#include "text/template/chat_template.h"

namespace qtrain {
namespace {

/// One config on its way from text to ResolvedConfig. Problems are collected, so that all can be told at once.
class Loading {
 public:
  explicit Loading(ConfigDocument document) : document_(std::move(document)) {}

  ResolvedConfig run(const Overrides& overrides) {
    if (!document_.value.is_object())
      fail(ErrorKind::usage,
           {.cause = fmt::format("a config is an object of keys and values, not {}", show(document_.value)),
            .place = document_.name});
    require_config(document_.value, document_.name);
    document_.value = without_comments(document_.value);
    const DialectTable& dialect = choose_dialect(overrides);
    out_.dialect = dialect.name;
    draft_.folder = std::filesystem::path(document_.name).parent_path();
    draft_.settings = settings_of(dialect, document_);
    for (const auto& [key, value] : overrides) override_with(dialect, key, value);
    if (dialect.name == "axolotl") settle_axolotl(draft_);
    if (dialect.name == "llamafactory") settle_llamafactory(draft_);
    settle_checkpointing();
    add_launcher_settings(draft_, document_);
    settle_floor();
    std::erase_if(draft_.settings, [](const auto& entry) { return entry.first.front() == kPending; });
    apply(dialect);
    if (!judge().found_problems()) follow(dialect);
    if (!judge().found_problems() && dialect.data.contains("answers_only")) tell_answers_apart();
    follow(dialect_table("rules"));
    complete_config(out_);
    if (!judge().found_problems())
      for (ErrorText& problem : contradictions(out_)) judge().problem(std::move(problem));
    if (!judge().found_problems()) describe_start(dialect);
    return std::move(out_);
  }

 private:
  Judge& judge() { return out_.judge; }

  const DialectTable& choose_dialect(const Overrides& overrides) {
    Json probe = document_.value;
    for (const auto& [key, value] : overrides)
      if (key == "dialect" || key == "model_name_or_path") probe[key] = value;
    return detect_dialect(probe, document_.name);
  }

  /// The settings of one document under canonical keys.
  Settings settings_of(const DialectTable& dialect, const ConfigDocument& document) {
    Settings settings;
    std::vector<std::string> names;
    for (const auto& [key, raw] : flatten(dialect, document, judge())) {
      take(settings, dialect, raw, key);
      names.push_back(last_name(raw.written));
    }
    for (const auto& [name, of] : common_table().object("adapter_names").items())  // the first that decides
      if (adapter_class_.empty() && std::ranges::find(names, name) != names.end())
        adapter_class_ = of.get<std::string>();
    return settings;
  }

  static std::string last_name(const std::string& path) { return path.substr(path.rfind('.') + 1); }

  /// A dialect's own meaning of a key goes before what it means elsewhere.
  void take(Settings& settings, const DialectTable& dialect, const Setting& raw, const std::string& name) {
    if (raw.overrides()) judge().retract(canonical(name));
    if (const KeyRow* own = dialect.find(name); own && (own->is_translated() || !find_field(name)))
      return take_row(settings, *own, raw);
    const std::string key(canonical_key(name));
    const KeyRow* row = common_table().find(key);
    if (row && (row->is_translated() || !find_field(key))) return take_row(settings, *row, raw);
    if (find_field(key)) return add(settings, key, raw);
    const std::string near = hint(judge(), name, known_keys());
    judge().problem(raw.place, fmt::format("unknown key \"{}\"", raw.written),
                    near.empty()   ? "qtrain config lists all keys"
                    : near == name ? "it is a key of another dialect: see docs/config.md"
                                   : fmt::format("did you mean \"{}\"?", near));
  }

  void take_row(Settings& settings, const KeyRow& row, const Setting& raw) {
    if (!row.is_translated()) return ignore(row, raw);
    const Translation made = translate(row, raw.value);
    if (!made.problem.empty()) draft_.problem(raw, ": " + made.problem, row.remedy);
    for (const std::string& remark : made.remarks)
      judge().say({.origin = raw.place,
                   .text = fmt::format("\"{}\": {}", raw.written, remark),
                   .key = canonical(last_name(raw.written))});
    for (const auto& [target, value] : made.settings) {
      const KeyRow* ignored = find_field(target) ? nullptr : common_table().find(target);
      const Setting setting{raw.written, raw.place, value};
      ignored && !ignored->is_translated() ? ignore(*ignored, setting) : add(settings, target, setting);
    }
  }

  /// A key that is ignored or unsupported, unless its value means what the program does anyway.
  void ignore(const KeyRow& row, const Setting& raw) {
    if (row.is_neutral(raw.value)) return;
    Remark remark{.origin = raw.place, .text = row.reason, .key = canonical(last_name(raw.written))};
    if (row.status == KeyStatus::unsupported) {
      remark.level = RemarkLevel::problem;
      remark.text = fmt::format("\"{}\": {} cannot be honored: {}", raw.written, show(raw.value), row.reason);
      remark.remedy = "remove the key";
    } else {
      remark.level = row.status == KeyStatus::warned ? RemarkLevel::warning : RemarkLevel::note;
      remark.ignored = raw.written;
      remark.value = raw.value;
    }
    judge().say(std::move(remark));
  }

  static std::string canonical(const std::string& name) { return std::string(canonical_key(name)); }

  /// Adds a setting unless the same document already gave the key another value.
  void add(Settings& settings, const std::string& key, Setting setting) {
    if (const Field* field = find_field(key); setting.value.is_null() && !(field && field->takes_null)) return;
    const auto [it, is_new] = settings.emplace(key, setting);
    if (is_new || it->second.value == setting.value) return;
    draft_.problem(setting,
                   fmt::format(" is {}, but \"{}\" already set {} to {}", show(setting.value), it->second.written, key,
                               show(it->second.value)),
                   "keep one of them");
  }

  void override_with(const DialectTable& dialect, const std::string& path, const std::string& text) {
    Json value = Json::parse(text, nullptr, false);
    if (value.is_discarded()) value = text;
    if (value.is_null()) forget(path);
    const bool nested = path.find('.') != std::string::npos;
    const ConfigDocument document{.value = nest(path, std::move(value)), .name = std::string(kCommandLine)};
    for (auto& [key, setting] : settings_of(dialect, document)) {
      const auto before = draft_.settings.find(key);
      if (nested && setting.value.is_object() && before != draft_.settings.end() && before->second.value.is_object()) {
        Json merged = before->second.value;
        merged.update(setting.value);
        setting.value = std::move(merged);
      }
      draft_.settings[key] = setting;
    }
  }

  /// null on the command line takes back what the file says.
  void forget(const std::string& name) {
    judge().retract(canonical(last_name(name)));
    std::erase_if(draft_.settings, [&, key = canonical(name)](const auto& setting) {
      return setting.first == key || setting.second.written == name;
    });
  }

  /// {"a": {"b": value}} for "a.b".
  static Json nest(const std::string& path, Json value) {
    const auto dot = path.find('.');
    Json object = Json::object();
    if (dot == std::string::npos)
      object[path] = std::move(value);
    else
      object[path.substr(0, dot)] = nest(path.substr(dot + 1), std::move(value));
    return object;
  }

  void set_defaults(const Json& defaults, std::string_view whose) {
    for (const auto& [key, value] : defaults.items()) {
      check(assign_field(out_.value, key, value).error.empty(), "a dialect has an impossible default");
      out_.origin[key] = fmt::format("default ({})", whose);
    }
  }

  /// What is recomputed in attention alone: whole blocks hold it anyway. The command line goes before the file.
  void settle_checkpointing() {
    const Setting* attention = draft_.find("~attention_checkpointing");
    const Setting* blocks = draft_.find("gradient_checkpointing");
    if (attention == nullptr) return;
    const bool later = blocks && attention->overrides() && !blocks->overrides();
    if (blocks && !later && (blocks->value == true || blocks->overrides())) return;
    if (later)
      draft_.note(*blocks, fmt::format(" {} has no effect: \"{}\" is given on the command line", show(blocks->value),
                                       attention->written));
    draft_.settings["gradient_checkpointing"] = *attention;
  }

  /// A floor of the cosine schedule, as axolotl and DeepSpeed name it.
  void settle_floor() {
    const Setting *floor = draft_.find("~cosine_min_lr_ratio"), *schedule = draft_.find("lr_scheduler_type");
    if (!draft_.positive("~cosine_min_lr_ratio") || (schedule && schedule->value != "cosine")) return;
    draft_.settings["lr_scheduler_type"] = {floor->written, floor->place, "cosine_with_min_lr"};
    draft_.offer("lr_scheduler_kwargs", {floor->written, floor->place, {{"min_lr_rate", floor->value}}});
  }

  void apply(const DialectTable& dialect) {
    for (const auto name : field_names()) out_.origin[std::string(name)] = fmt::format("default ({})", dialect.name);
    set_defaults(dialect.object("defaults"), dialect.name);
    if (&dialect == &common_table()) {
      const Json& classes = common_table().object("adapter_defaults");
      const std::string adapter = adapter_class_.empty() ? classes.begin().key() : adapter_class_;
      set_defaults(classes.at(adapter), adapter);
    }
    for (const auto& [key, setting] : draft_.settings) {
      const auto [error, remedy] = assign_field(out_.value, key, setting.value);
      if (!error.empty()) draft_.problem(setting, " " + error, remedy);
      const bool renamed = setting.written != key;
      out_.origin[key] = renamed ? fmt::format("{} ({})", setting.place, setting.written) : setting.place;
    }
  }

  /// What follows from values that are known, by the rows of a table.
  void follow(const DialectTable& table) {
    for (const Json& rule : table.object("then")) {
      const Json values = values_json(out_.value);
      if (!applies(rule, out_, values)) continue;
      const Json notes = rule.value("note", Json::object()), settings = rule.value("set", Json::object());
      for (const auto& [key, text] : notes.items())
        if (out_.given(key)) judge().note(out_.origin.at(key), text);
      for (const auto& [key, value] : settings.items()) {
        const std::string other = value.is_string() ? value.get<std::string>() : "";
        if (!out_.given(key) || rule.contains("anyway"))
          assign_field(out_.value, key, other.starts_with('=') ? values.at(other.substr(1)) : value);
      }
    }
  }

  /// A model whose folder has no chat template has rows without roles, where completion_only_loss tells answers apart.
  void tell_answers_apart() {
    const ModelSection& m = out_.value.model;
    bool& by_roles = out_.value.data.assistant_only_loss;
    const std::filesystem::path folder = m.tokenizer_name_or_path.value_or(m.model_name_or_path);
    std::error_code ignored;
    if (out_.given("assistant_only_loss") || !by_roles || m.chat_template_path) return;
    if (!std::filesystem::is_directory(folder, ignored) || ChatTemplate::exists(folder)) return;
    by_roles = false;
    judge().note({}, "the model's folder has no chat template: rows become plain text, the loss is on completions");
  }

  void describe_start(const DialectTable& dialect) {
    const Json values = values_json(out_.value);
    std::string line = fmt::format("{}: dialect {}", document_.name, dialect.name);
    if (dialect.name != "hf")
      line += fmt::format(" ({})", dialect.text("about"));  // of the usual one the reference tells
    std::string sep = "; defaults in use: ";
    const auto tell = [&](std::string_view key) {
      if (out_.given(std::string(key))) return;
      line += fmt::format("{}{} {}", sep, key, show(values.at(std::string(key))));
      sep = ", ";
    };
    for (const auto key : common_table().list("told")) tell(key);
    if (out_.value.lora.use_peft)
      for (const auto key : common_table().list("told_of_adapters")) tell(key);
    judge().begin(line);
  }

  ConfigDocument document_;
  ResolvedConfig out_;
  Draft draft_{.judge = out_.judge};
  std::string adapter_class_;  ///< of the Python libraries, whose names are used, those of the file first
};

}  // namespace

ResolvedConfig resolve_config(ConfigDocument document, const Overrides& overrides) {
  return Loading(std::move(document)).run(overrides);
}

}  // namespace qtrain
