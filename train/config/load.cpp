#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/file.h"
#include "train/config/check.h"
#include "train/config/dialect.h"
#include "train/config/key_lines.h"
#include "train/config/keys.h"
#include "train/config/values.h"

namespace qtrain {
namespace {

constexpr std::uint64_t kMaxConfigBytes = 16u << 20;

/// A value for a canonical key.
struct Setting {
  std::string written;  ///< the key as the user wrote it
  std::string place;    ///< "config.json:12" or "command line"
  Json value;
};
using Settings = std::map<std::string, Setting>;

/// Stores a JSON value in the field of that name.
struct AssignVisitor {
  std::string_view key;
  const Json& value;
  std::optional<std::string> error = {};
  std::string near = {};  ///< the word that was probably meant

  void section(std::string_view) {}
  template <class T>
  void operator()(std::string_view name, T& member, const Spec& spec) {
    if (name != key || (value.is_null() && !IsOptional<T>::value)) return;
    error = assign(value, member, spec);
    if (error && value.is_string()) near = nearest(value.get_ref<const std::string&>(), words_of<T>(spec));
  }
};

/// Stores a value; what is wrong with it (empty: nothing), and what to do about it.
struct Assigned {
  std::string error, remedy;
};
Assigned assign_field(Config& config, std::string_view key, const Json& value) {
  AssignVisitor visit{key, value};
  config_fields(visit, config);
  return {visit.error.value_or(""), visit.near.empty() ? "" : fmt::format("did you mean \"{}\"?", visit.near)};
}

/// The remedy for a value in quotes that would do without them.
std::string without_quotes(std::string_view key, const Json& value) {
  const Json inner = value.is_string() ? Json::parse(value.get<std::string>(), nullptr, false) : Json();
  Config scratch;
  const bool would_do = !inner.is_discarded() && !inner.is_null() && assign_field(scratch, key, inner).error.empty();
  return would_do ? "write it without quotes" : "";
}

/// Finds whether null is a value of the field (and does not just mean "not given").
struct NullVisitor {
  std::string_view key;
  bool takes_null = false;

  void section(std::string_view) {}
  template <class T>
  void operator()(std::string_view name, const T&, const Spec&) {
    if (name == key) takes_null = IsOptional<T>::value;
  }
};

bool takes_null(std::string_view key) {
  NullVisitor visit{key};
  const Config config;
  config_fields(visit, config);
  return visit.takes_null;
}

/// One config on its way from text to ResolvedConfig. Problems are collected, so that all can be told at once.
class Loading {
 public:
  explicit Loading(std::string name) : name_(std::move(name)) {}

  ResolvedConfig run(std::string_view text, const Overrides& overrides) {
    const Json document =
        parse_json(text, name_, {.comments = true, .max_bytes = kMaxConfigBytes, .blame = ErrorKind::usage});
    if (!document.is_object())
      fail(ErrorKind::usage,
           {.cause = fmt::format("a config is a JSON object, not {}", show(document)), .place = name_});
    lines_ = key_lines(text);
    const Dialect& dialect = choose_dialect(document, overrides);
    out_.dialect = dialect.name;
    const Settings from_file = settings_of(dialect, document, [&](const std::string& path) { return place_of(path); });
    Settings settings = from_file;
    for (const auto& [key, value] : overrides) override_with(settings, dialect, key, value);
    apply(dialect, settings);
    if (problems_.empty() && dialect.complete) dialect.complete(out_);
    complete_config(out_);
    if (problems_.empty())
      for (ErrorText& problem : contradictions(out_)) problems_.push_back(std::move(problem));
    if (problems_.empty()) describe_start(dialect);
    return std::move(out_);
  }

  const std::vector<ErrorText>& problems() const { return problems_; }

 private:
  using PlaceOf = std::function<std::string(const std::string& path)>;

  std::string place_of(const std::string& path) const {
    for (std::string p = path; !p.empty();) {
      if (const auto it = lines_.find(p); it != lines_.end()) return fmt::format("{}:{}", name_, it->second);
      const auto dot = p.rfind('.');
      p = dot == std::string::npos ? "" : p.substr(0, dot);
    }
    return name_;
  }

  void problem(std::string place, std::string cause, std::string remedy = {}) {
    problems_.push_back({.cause = std::move(cause), .place = std::move(place), .remedy = std::move(remedy)});
  }

  const Dialect& choose_dialect(const Json& document, const Overrides& overrides) {
    Json probe = document;
    for (const auto& [key, value] : overrides)
      if (key == "dialect" || key == "model_name_or_path") probe[key] = value;
    return detect_dialect(probe, name_);
  }

  /// The settings of one document under canonical keys.
  Settings settings_of(const Dialect& dialect, const Json& document, const PlaceOf& place) {
    Settings settings;
    const auto raw = flatten(dialect, document, [&](const std::string& path, std::string text) {
      problem(place(path), fmt::format("\"{}\": {}", path, text));
    });
    for (const RawSetting& r : raw) take(settings, r, place(r.path));
    return settings;
  }

  void take(Settings& settings, const RawSetting& raw, const std::string& place) {
    const Alias* alias = find_alias(raw.key);
    const std::string key(alias ? alias->key : raw.key);
    if (const Rewrite* rewrite = find_rewrite(key)) {
      const Rewritten made = rewrite->apply(raw.value);
      if (!made.problem.empty()) problem(place, fmt::format("\"{}\": {}", raw.path, made.problem));
      for (const auto& [target, value] : made.settings) add(settings, target, {raw.path, place, value});
    } else if (is_field(key)) {
      add(settings, key, {raw.path, place, raw.value});
    } else if (const InertKey* inert = find_inert(key)) {
      take_inert(*inert, raw, place);
    } else {
      const std::string near = nearest_key(raw.key);
      problem(place, fmt::format("unknown key \"{}\"", raw.path),
              near.empty() ? "qtrain config lists all keys" : fmt::format("did you mean \"{}\"?", near));
    }
  }

  void take_inert(const InertKey& inert, const RawSetting& raw, const std::string& place) {
    if (is_neutral(inert, raw.value)) return;
    if (inert.refused)
      return problem(place, fmt::format("\"{}\": {} cannot be honoured: {}", raw.path, show(raw.value), inert.why),
                     "remove the key");
    out_.inert[std::string(inert.name)] = raw.value;
    remarks_.push_back(fmt::format("{}: \"{}\" has no effect: {}", place, raw.path, inert.why));
  }

  /// Adds a setting unless the same document already gave the key another value.
  void add(Settings& settings, const std::string& key, Setting setting) {
    if (setting.value.is_null() && !takes_null(key)) return;
    const auto [it, is_new] = settings.emplace(key, setting);
    if (is_new || it->second.value == setting.value) return;
    problem(setting.place,
            fmt::format("\"{}\" is {}, but \"{}\" already set {} to {}", setting.written, show(setting.value),
                        it->second.written, key, show(it->second.value)),
            "keep one of them");
  }

  void override_with(Settings& settings, const Dialect& dialect, const std::string& path, const std::string& text) {
    Json value = Json::parse(text, nullptr, false);
    if (value.is_discarded()) value = text;
    const bool nested = path.find('.') != std::string::npos;
    Json document = nest(path, std::move(value));
    for (auto& [key, setting] : settings_of(dialect, document, [](const std::string&) { return "command line"; })) {
      const auto before = settings.find(key);
      if (nested && setting.value.is_object() && before != settings.end() && before->second.value.is_object()) {
        Json merged = before->second.value;
        merged.update(setting.value);
        setting.value = std::move(merged);
      }
      settings[key] = setting;
    }
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

  void apply(const Dialect& dialect, const Settings& settings) {
    for (const auto name : field_names()) out_.origin[std::string(name)] = fmt::format("default ({})", dialect.name);
    for (const DialectDefault& d : dialect.defaults) {
      const bool possible = assign_field(out_.value, d.key, Json::parse(d.json)).error.empty();
      check(possible, "a dialect has an impossible default");
    }
    for (const auto& [key, setting] : settings) {
      const auto [error, remedy] = assign_field(out_.value, key, setting.value);
      if (!error.empty())
        problem(setting.place, fmt::format("\"{}\" {}", setting.written, error),
                remedy.empty() ? without_quotes(key, setting.value) : remedy);
      const bool renamed = setting.written != key;
      out_.origin[key] = renamed ? fmt::format("{} ({})", setting.place, setting.written) : setting.place;
    }
  }

  void describe_start(const Dialect& dialect) {
    constexpr std::string_view kTold[] = {
        "learning_rate", "lr_scheduler_type", "optim", "num_train_epochs",      "per_device_train_batch_size",
        "max_length",    "max_grad_norm",     "bf16",  "gradient_checkpointing"};
    const Json values = values_json(out_.value);
    std::string line = fmt::format("{}: dialect {} ({})", name_, dialect.name, dialect.about);
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
    out_.notes.insert(out_.notes.end(), remarks_.begin(), remarks_.end());
  }

  std::string name_;
  std::map<std::string, int> lines_;
  std::vector<ErrorText> problems_;
  std::vector<std::string> remarks_;
  ResolvedConfig out_;
};

/// All problems as one error: one is told as it is, several as a list.
[[noreturn]] void fail_with(const std::vector<ErrorText>& problems, const std::string& place) {
  if (problems.size() == 1) fail(ErrorKind::usage, problems[0]);
  std::string cause = fmt::format("{} problems", problems.size());
  for (const ErrorText& p : problems) cause += "\n" + std::string(Error(ErrorKind::usage, p).what());
  fail(ErrorKind::usage, {.cause = cause, .place = place});
}

std::string read_config(const std::filesystem::path& file) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored))
    fail(ErrorKind::usage, {.cause = "no such config file", .place = file.string()});
  try {
    return read_text(file, kMaxConfigBytes);
  } catch (const Error& e) {
    fail(ErrorKind::usage, e.text());
  }
}

}  // namespace

ResolvedConfig parse_config(std::string_view text, std::string_view name, const Overrides& overrides) {
  Loading loading{std::string(name)};
  ResolvedConfig config = loading.run(text, overrides);
  if (!loading.problems().empty()) fail_with(loading.problems(), std::string(name));
  return config;
}

ResolvedConfig load_config(const std::filesystem::path& file, const Overrides& overrides) {
  return parse_config(read_config(file), file.string(), overrides);
}

CheckedConfig check_config(const std::filesystem::path& file, const Overrides& overrides) {
  try {
    Loading loading{file.string()};
    ResolvedConfig config = loading.run(read_config(file), overrides);
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
  if (config.value.data.dataset_name.empty())
    problems.push_back(
        {.cause = "dataset_name is missing", .place = "config", .remedy = "name a file, glob or folder"});
  const Config& c = config.value;
  for (const auto& [wanted, key] :
       {std::pair(c.quant.load_in_4bit, "load_in_4bit"), std::pair(c.quant.load_in_8bit, "load_in_8bit")})
    if (wanted && !c.lora.use_peft && !c.model.adapter_name_or_path)
      problems.push_back({.cause = fmt::format("{} is true, and quantised weights cannot be trained", key),
                          .place = config.origin.at(key),
                          .remedy = "train an adapter (use_peft=true)"});
  if (!problems.empty()) fail_with(problems, "config");
}

}  // namespace qtrain
