#include <fmt/format.h>

#include <algorithm>

#include "config/adapter_defaults.h"
#include "config/assign.h"
#include "config/check.h"
#include "config/dialect.h"
#include "config/document.h"
#include "config/foreign_files.h"
#include "config/keys.h"

namespace qtrain {
namespace {

constexpr std::size_t kMostSuggestions = 20;  // each takes a look at all names

/// A key without effect that was given, or a remark that a rewrite has made about one.
struct Remarked {
  std::string key;  ///< under its canonical name
  Setting raw;
  const InertKey* inert = nullptr;  ///< null: the remark
  std::string remark = {};
};

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
    out_.dialect = dialect.name;
    draft_.folder = std::filesystem::path(name_).parent_path();
    draft_.settings = settings_of(dialect, document_.value, [&](auto& path) { return document_.place_of(path); });
    for (const auto& [key, value] : overrides) override_with(dialect, key, value);
    if (dialect.settle) dialect.settle(draft_);
    settle_checkpointing();
    add_launcher_settings(draft_, document_);
    std::erase_if(draft_.settings, [](const auto& entry) { return entry.first.front() == kPending; });
    settle_remarked();
    out_.inert = draft_.inert;
    apply(dialect);
    if (draft_.problems.empty() && dialect.complete) dialect.complete(out_);
    complete_config(out_);
    if (draft_.problems.empty()) draft_.problems = contradictions(out_);
    if (draft_.problems.empty()) describe_start(dialect);
    return std::move(out_);
  }

  const std::vector<ErrorText>& problems() const { return draft_.problems; }

 private:
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
      draft_.problem(place(path), fmt::format("\"{}\": {}", path, text));
    });
    std::vector<std::string> names;
    for (const RawSetting& r : raw) {
      if (!r.described.empty()) {
        draft_.inert[r.path] = {{"value", r.value}, {"origin", place(r.path)}, {"reason", r.described}};
        continue;
      }
      take(settings, dialect, {r.path, place(r.path), r.value}, r.key);
      names.push_back(last_name(r.path));
    }
    if (adapter_class_ == nullptr) adapter_class_ = adapter_class(names);
    return settings;
  }

  static std::string last_name(const std::string& path) { return path.substr(path.rfind('.') + 1); }

  /// A dialect's own meaning of a key goes before what it means elsewhere.
  void take(Settings& settings, const Dialect& dialect, const Setting& raw, const std::string& name) {
    if (raw.overrides()) retract(name);
    if (const Rewrite* own = dialect.own_rewrite(name)) return rewrite(settings, *own, raw);
    if (const InertKey* own = dialect.own_inert(name); own && !is_field(name)) return take_inert(*own, raw);
    const std::string key = canonical(name);
    if (const Rewrite* translation = find_rewrite(key)) return rewrite(settings, *translation, raw);
    if (is_field(key)) return add(settings, key, raw);
    if (const InertKey* inert = find_inert(key)) return take_inert(*inert, raw);
    const std::string near = draft_.problems.size() < kMostSuggestions ? nearest_key(name) : "";
    draft_.problem(raw.place, fmt::format("unknown key \"{}\"", raw.written),
                   near.empty()   ? "qtrain config lists all keys"
                   : near == name ? "it is a key of another dialect: see docs/config.md"
                                  : fmt::format("did you mean \"{}\"?", near));
  }

  void rewrite(Settings& settings, const Rewrite& rewrite, const Setting& raw) {
    const Rewritten made = rewrite.apply(raw.value);
    if (!made.problem.empty()) draft_.problem(raw.place, fmt::format("\"{}\": {}", raw.written, made.problem));
    for (const std::string& remark : made.remarks)
      remarked_.push_back({canonical(last_name(raw.written)), raw, nullptr, remark});
    for (const auto& [target, value] : made.settings) {
      const InertKey* inert = is_field(target) ? nullptr : find_inert(target);
      inert ? take_inert(*inert, {raw.written, raw.place, value})
            : add(settings, target, {raw.written, raw.place, value});
    }
  }

  void take_inert(const InertKey& inert, const Setting& raw) {
    if (!is_neutral(inert, raw.value)) remarked_.push_back({canonical(last_name(raw.written)), raw, &inert});
  }

  static std::string canonical(const std::string& name) {
    const Alias* alias = find_alias(name);
    return std::string(alias ? alias->key : name);
  }

  /// What was remarked of a key that is given anew, or taken back.
  void retract(const std::string& name) {
    std::erase_if(remarked_, [key = canonical(name)](const Remarked& said) { return said.key == key; });
  }

  void settle_remarked() {
    for (const auto& [key, raw, inert, remark] : remarked_) {
      if (inert == nullptr) {
        draft_.remarks.push_back(fmt::format("{}: \"{}\": {}", raw.place, raw.written, remark));
        continue;
      }
      if (inert->refused) {
        draft_.problem(raw.place,
                       fmt::format("\"{}\": {} cannot be honored: {}", raw.written, show(raw.value), inert->why),
                       "remove the key");
        continue;
      }
      draft_.inert[raw.written] = {{"value", raw.value}, {"origin", raw.place}, {"reason", inert->why}};
      (inert->warns ? out_.warnings : draft_.remarks)
          .push_back(fmt::format("{}: \"{}\" has no effect: {}", raw.place, raw.written, inert->why));
    }
  }

  /// Adds a setting unless the same document already gave the key another value.
  void add(Settings& settings, const std::string& key, Setting setting) {
    if (setting.value.is_null() && !takes_null(key)) return;
    const auto [it, is_new] = settings.emplace(key, setting);
    if (is_new || it->second.value == setting.value) return;
    draft_.problem(setting.place,
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
    retract(last_name(name));
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

  void set_defaults(std::span<const DialectDefault> defaults, std::string_view whose) {
    for (const DialectDefault& d : defaults) {
      const bool possible = assign_field(out_.value, d.key, Json::parse(d.json)).error.empty();
      check(possible, "a dialect has an impossible default");
      out_.origin[std::string(d.key)] = fmt::format("default ({})", whose);
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
      draft_.remarks.push_back(fmt::format("{}: \"{}\" {} has no effect: \"{}\" is given on the command line",
                                           blocks->place, blocks->written, show(blocks->value), attention->written));
    draft_.settings["gradient_checkpointing"] = *attention;
  }

  void apply(const Dialect& dialect) {
    for (const auto name : field_names()) out_.origin[std::string(name)] = fmt::format("default ({})", dialect.name);
    set_defaults(dialect.defaults, dialect.name);
    if (dialect.name == "hf") {
      const AdapterClass& adapter = adapter_class_ ? *adapter_class_ : usual_adapter_class();
      set_defaults(adapter.defaults, adapter.name);
    }
    for (const auto& [key, setting] : draft_.settings) {
      const auto [error, remedy] = assign_field(out_.value, key, setting.value);
      if (!error.empty()) draft_.problem(setting.place, fmt::format("\"{}\" {}", setting.written, error), remedy);
      const bool renamed = setting.written != key;
      out_.origin[key] = renamed ? fmt::format("{} ({})", setting.place, setting.written) : setting.place;
    }
  }

  void describe_start(const Dialect& dialect) {
    constexpr std::string_view kTold[] = {
        "learning_rate", "lr_scheduler_type", "optim", "num_train_epochs",      "per_device_train_batch_size",
        "max_length",    "max_grad_norm",     "bf16",  "gradient_checkpointing"};
    const Json values = values_json(out_.value);
    std::string line = fmt::format("{}: dialect {}", name_, dialect.name);
    if (dialect.name != "hf") line += fmt::format(" ({})", dialect.about);  // of the usual one the reference tells
    std::string sep = "; defaults in use: ";
    const auto tell = [&](std::string_view key) {
      if (out_.given(std::string(key))) return;
      line += fmt::format("{}{} {}", sep, key, show(values.at(std::string(key))));
      sep = ", ";
    };
    for (const auto key : kTold) tell(key);
    if (out_.value.lora.use_peft)
      for (const auto* key : {"lora_r", "lora_alpha", "lora_dropout"}) tell(key);
    out_.notes.insert(out_.notes.begin(), line);
    out_.notes.insert(out_.notes.end(), draft_.remarks.begin(), draft_.remarks.end());
  }

  ConfigDocument document_;
  std::string name_;
  Draft draft_;
  std::vector<Remarked> remarked_;
  const AdapterClass* adapter_class_ = nullptr;  ///< whose names are used, those of the file first
  ResolvedConfig out_;
};

/// All problems as one error: one is told as it is, several as a list.
[[noreturn]] void fail_with(const std::vector<ErrorText>& problems, const std::string& place) {
  if (problems.size() == 1) fail(ErrorKind::usage, problems[0]);
  constexpr std::size_t kMostListed = 50;
  std::string cause = fmt::format("{} problems", problems.size());
  for (std::size_t i = 0; i < std::min(problems.size(), kMostListed); ++i)
    cause += "\n" + std::string(Error(ErrorKind::usage, problems[i]).what());
  if (problems.size() > kMostListed) cause += fmt::format("\nand {} more", problems.size() - kMostListed);
  fail(ErrorKind::usage, {.cause = cause, .place = place});
}

ResolvedConfig load_document(ConfigDocument document, const Overrides& overrides) {
  const std::string name = document.name;
  Loading loading{std::move(document)};
  ResolvedConfig config = loading.run(overrides);
  if (!loading.problems().empty()) fail_with(loading.problems(), name);
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
    return {.config = std::move(config), .problems = loading.problems()};
  } catch (const Error& e) {  // a file that cannot be parsed has one problem
    return {.config = std::nullopt, .problems = {e.text()}};
  }
}

std::vector<ErrorText> config_problems(const std::filesystem::path& file, const Overrides& overrides) {
  return check_config(file, overrides).problems;
}

void require_supported(const ResolvedConfig& config) {
  const auto problems = unsupported(config);
  if (!problems.empty()) fail_with(problems, "config");
}

void require_trainable(const ResolvedConfig& config) {
  auto problems = unsupported(config);
  if (!config.value.data.has_training_rows())
    problems.push_back(
        {.cause = "dataset_name is missing", .place = "config", .remedy = "name a file, glob or folder"});
  const Config& c = config.value;
  for (const auto& [wanted, key] :
       {std::pair(c.quant.load_in_4bit, "load_in_4bit"), std::pair(c.quant.load_in_8bit, "load_in_8bit")})
    if (wanted && !c.lora.use_peft && !c.model.adapter_name_or_path)
      problems.push_back({.cause = fmt::format("{} is true, and quantized weights cannot be trained", key),
                          .place = config.origin.at(key),
                          .remedy = "train an adapter (use_peft=true)"});
  if (!problems.empty()) fail_with(problems, "config");
}

}  // namespace qtrain
