#include <fmt/format.h>

#include <algorithm>

#include "config/check.h"
#include "config/dialect.h"
#include "config/document.h"
#include "config/fields.h"
#include "config/foreign_files.h"
#include "config/keys.h"

namespace qtrain {
namespace {

constexpr std::size_t kMaxSuggestions = 20;  // each takes a look at all names

/// One config on its way from text to ResolvedConfig. Problems are collected, so that all can be told at once.
class Loading {
 public:
  explicit Loading(ConfigDocument document) : document_(std::move(document)), name_(document_.name) {}

  ResolvedConfig run(const Overrides& overrides) {
    if (!document_.value.is_object())
      fail(ErrorKind::usage,
           {.cause = fmt::format("a config is an object of keys and values, not {}", show(document_.value)),
            .place = name_});
    require_config(document_.value, name_);
    document_.value = without_comments(document_.value);
    const Dialect& dialect = choose_dialect(overrides);
    out_.dialect = dialect.name();
    draft_.folder = std::filesystem::path(name_).parent_path();
    draft_.settings = settings_of(dialect, document_.value, [&](auto& path) { return document_.place_of(path); });
    for (const auto& [key, value] : overrides) override_with(dialect, key, value);
    if (dialect.settle) dialect.settle(draft_);
    settle_checkpointing();
    add_launcher_settings(draft_, document_);
    std::erase_if(draft_.settings, [](const auto& entry) { return entry.first.front() == kPending; });
    apply(dialect);
    if (!judge().found_problems() && dialect.complete) dialect.complete(out_);
    complete_config(out_);
    if (!judge().found_problems())
      for (ErrorText& problem : contradictions(out_)) judge().problem(std::move(problem));
    if (!judge().found_problems()) describe_start(dialect);
    return std::move(out_);
  }

 private:
  Judge& judge() { return out_.judge; }

  using PlaceOf = std::function<std::string(const std::string& path)>;

  const Dialect& choose_dialect(const Overrides& overrides) {
    Json probe = document_.value;
    for (const auto& [key, value] : overrides)
      if (key == "dialect" || key == "model_name_or_path") probe[key] = value;
    return detect_dialect(probe, name_);
  }

  /// The settings of one document under canonical keys.
  Settings settings_of(const Dialect& dialect, const Json& document, const PlaceOf& place) {
    Settings settings;
    const auto raw = flatten(dialect, document, [&](const std::string& path, std::string text) {
      judge().problem(place(path), fmt::format("\"{}\": {}", path, text));
    });
    std::vector<std::string> names;
    for (const RawSetting& r : raw) {
      if (!r.description.empty()) {
        judge().say({.level = RemarkLevel::silent,
                     .origin = place(r.path),
                     .text = r.description,
                     .ignored = r.path,
                     .value = r.value});
        continue;
      }
      take(settings, dialect, {r.path, place(r.path), r.value}, r.key);
      names.push_back(last_name(r.path));
    }
    if (adapter_class_.empty()) adapter_class_ = adapter_class(names);
    return settings;
  }

  static std::string last_name(const std::string& path) { return path.substr(path.rfind('.') + 1); }

  /// A dialect's own meaning of a key goes before what it means elsewhere.
  void take(Settings& settings, const Dialect& dialect, const Setting& raw, const std::string& name) {
    if (raw.overrides()) judge().retract(canonical(name));
    if (const KeyRow* own = dialect.table.find(name); own && (own->is_translated() || !is_field(name)))
      return take_row(settings, *own, raw);
    const std::string key(canonical_key(name));
    const KeyRow* row = common_table().find(key);
    if (row && (row->is_translated() || !is_field(key))) return take_row(settings, *row, raw);
    if (is_field(key)) return add(settings, key, raw);
    const std::string near = judge().count_problems() < kMaxSuggestions ? nearest_key(name) : "";
    judge().problem(raw.place, fmt::format("unknown key \"{}\"", raw.written),
                    near.empty()   ? "qtrain config lists all keys"
                    : near == name ? "it is a key of another dialect: see docs/config.md"
                                   : fmt::format("did you mean \"{}\"?", near));
  }

  void take_row(Settings& settings, const KeyRow& row, const Setting& raw) {
    if (!row.is_translated()) return ignore(row, raw);
    const Translation made = translate(row, raw.value);
    if (!made.problem.empty()) judge().problem(raw.place, fmt::format("\"{}\": {}", raw.written, made.problem));
    for (const std::string& remark : made.remarks)
      judge().say({.origin = raw.place,
                   .text = fmt::format("\"{}\": {}", raw.written, remark),
                   .key = canonical(last_name(raw.written))});
    for (const auto& [target, value] : made.settings) {
      const KeyRow* ignored = is_field(target) ? nullptr : common_table().find(target);
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
    judge().problem(setting.place,
                    fmt::format("\"{}\" is {}, but \"{}\" already set {} to {}", setting.written, show(setting.value),
                                it->second.written, key, show(it->second.value)),
                    "keep one of them");
  }

  void override_with(const Dialect& dialect, const std::string& path, const std::string& text) {
    Json value = Json::parse(text, nullptr, false);
    if (value.is_discarded()) value = text;
    if (value.is_null()) forget(path);
    const bool nested = path.find('.') != std::string::npos;
    Json document = nest(path, std::move(value));
    for (auto& [key, setting] : settings_of(dialect, document, [](auto&) { return std::string(kCommandLine); })) {
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

  /// The class of the Python libraries whose names of an adapter's keys are used, by the first that decides.
  static std::string adapter_class(const std::vector<std::string>& names) {
    for (const auto& [name, of] : common_table().object("adapter_names").items())
      if (std::ranges::find(names, name) != names.end()) return of.get<std::string>();
    return {};
  }

  /// What is recomputed in attention alone: whole blocks hold it anyway. The command line goes before the file.
  void settle_checkpointing() {
    const Setting* attention = draft_.find("~attention_checkpointing");
    const Setting* blocks = draft_.find("gradient_checkpointing");
    if (attention == nullptr) return;
    const bool later = blocks && attention->overrides() && !blocks->overrides();
    if (blocks && !later && (blocks->value == true || blocks->overrides())) return;
    if (later)
      judge().note(blocks->place, fmt::format("\"{}\" {} has no effect: \"{}\" is given on the command line",
                                              blocks->written, show(blocks->value), attention->written));
    draft_.settings["gradient_checkpointing"] = *attention;
  }

  void apply(const Dialect& dialect) {
    for (const auto name : field_names()) out_.origin[std::string(name)] = fmt::format("default ({})", dialect.name());
    set_defaults(dialect.table.object("defaults"), dialect.name());
    if (&dialect.table == &common_table()) {
      const Json& classes = common_table().object("adapter_defaults");
      const std::string adapter = adapter_class_.empty() ? classes.begin().key() : adapter_class_;
      set_defaults(classes.at(adapter), adapter);
    }
    for (const auto& [key, setting] : draft_.settings) {
      const auto [error, remedy] = assign_field(out_.value, key, setting.value);
      if (!error.empty()) judge().problem(setting.place, fmt::format("\"{}\" {}", setting.written, error), remedy);
      const bool renamed = setting.written != key;
      out_.origin[key] = renamed ? fmt::format("{} ({})", setting.place, setting.written) : setting.place;
    }
  }

  void describe_start(const Dialect& dialect) {
    constexpr std::string_view kTold[] = {
        "learning_rate", "lr_scheduler_type", "optim", "num_train_epochs",      "per_device_train_batch_size",
        "max_length",    "max_grad_norm",     "bf16",  "gradient_checkpointing"};
    const Json values = values_json(out_.value);
    std::string line = fmt::format("{}: dialect {}", name_, dialect.name());
    if (dialect.name() != "hf")
      line += fmt::format(" ({})", dialect.table.text("about"));  // of the usual one the reference tells
    std::string sep = "; defaults in use: ";
    const auto tell = [&](std::string_view key) {
      if (out_.given(std::string(key))) return;
      line += fmt::format("{}{} {}", sep, key, show(values.at(std::string(key))));
      sep = ", ";
    };
    for (const auto key : kTold) tell(key);
    if (out_.value.lora.use_peft)
      for (const auto* key : {"lora_r", "lora_alpha", "lora_dropout"}) tell(key);
    judge().begin(line);
  }

  ConfigDocument document_;
  std::string name_;
  ResolvedConfig out_;
  Draft draft_{.judge = out_.judge};
  std::string adapter_class_;  ///< whose names are used, those of the file first
};

ResolvedConfig load_document(ConfigDocument document, const Overrides& overrides) {
  const std::string name = document.name;
  Loading loading{std::move(document)};
  ResolvedConfig config = loading.run(overrides);
  if (config.judge.found_problems()) fail_with(config.judge.problems(), name);
  return config;
}

}  // namespace

ResolvedConfig parse_config(std::string_view text, std::string_view name, const Overrides& overrides) {
  return load_document(parse_config_document(text, name), overrides);
}

ResolvedConfig load_config(const std::filesystem::path& file, const Overrides& overrides) {
  return load_document(read_config_document(file), overrides);
}

CheckedConfig check_config(const std::filesystem::path& file, const Overrides& overrides) {
  try {
    Loading loading{read_config_document(file)};
    ResolvedConfig config = loading.run(overrides);
    std::vector<ErrorText> problems = config.judge.problems();
    return {.config = std::move(config), .problems = std::move(problems)};
  } catch (const Error& e) {  // a file that cannot be parsed has one problem
    return {.config = std::nullopt, .problems = {e.text()}};
  }
}

std::vector<ErrorText> config_problems(const std::filesystem::path& file, const Overrides& overrides) {
  return check_config(file, overrides).problems;
}

}  // namespace qtrain
