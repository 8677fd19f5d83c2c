#include "config/launchers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <sstream>

#include "config/keys.h"
#include "config/translate.h"
#include "config/yaml.h"
#include "optim/table.h"

/// Reads the configurations of DeepSpeed, FSDP and accelerate by their tables.
namespace qtrain {
namespace {

/// Whether a dotted key is below `part`.
bool holds(std::string_view part, std::string_view key) {
  return key.size() > part.size() && key.starts_with(part) && key[part.size()] == '.';
}

/// The row of a key, or of a part that contains it.
const KeyRow* row_of(const DialectTable& table, std::string_view key) {
  if (const KeyRow* row = table.find(key)) return row;
  const auto at =
      std::ranges::find_if(table.rows, [&](const KeyRow& row) { return !row.is_translated() && holds(row.name, key); });
  return at == table.rows.end() ? nullptr : &*at;
}

/// The value with text in lower case, and "true" and "false" as booleans.
Json plain(const Json& value) {
  if (!value.is_string()) return value;
  std::string lower = value.get<std::string>();
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return yaml_plain_value(lower);
}

/// Reads the configuration of a launcher by its table. Its settings must agree with those that the config gives.
class Launcher {
 public:
  Launcher(Draft& draft, std::string_view table) : draft_(draft), table_(dialect_table(table)) {}

  /// Reads the object in a setting, or the file that it names, and then reports all ignored keys in one note.
  void read(const Setting& setting, const ConfigDocument& config) {
    if (is_unset(setting.value)) return;
    if (setting.value.is_object()) return read_object(config, setting.value, setting.written + ".");
    if (!setting.value.is_string())
      return draft_.problem(setting, " expected a file or an object, got " + show(setting.value));
    const auto name = setting.value.get<std::string>();
    const auto file = draft_.named_file(name);
    if (!file)
      return draft_.problem(setting, fmt::format(": no such file \"{}\"", name),
                            "paths are relative to the current folder or to the config");
    try {
      const ConfigDocument document = read_config_document(*file);
      if (document.value.is_object()) return read_object(document, without_comments(document.value), "");
      draft_.diagnostics.problem(document.name,
                                 fmt::format("a configuration of {} must be an object of keys and values, not {}",
                                             table_.text("about"), show(document.value)));
    } catch (const Error& e) {  // one problem among others
      draft_.diagnostics.problem(e.text());
    }
  }

  /// The words that `fsdp` took before it became a switch.
  void read_words(const Setting& chosen) {
    for (const Json& part : chosen.value.is_array() ? chosen.value : Json::array({chosen.value})) {
      std::istringstream text(part.is_string() ? part.get<std::string>() : show(part));
      for (std::string word; text >> word;) {
        if (word == "true" || word == "True") return shard_fully(chosen);
        take(table_, "~word", chosen.with(word));
      }
    }
  }

  /// Reads one of trl's own accelerate files by its name. Returns false if it is not one of them.
  bool read_preset(const Setting& chosen) {
    const KeyRow& row = *table_.find("~preset");
    if (!chosen.value.is_string() || !row.meaning(chosen.value)) return false;
    take_row(row, chosen);
    return true;
  }

 private:
  /// Sets full sharding unless the options say otherwise.
  void shard_fully(const Setting& chosen) {
    if (!draft_.find("zero_stage")) draft_.offer("zero_stage", chosen.with(3));
  }

  void read_object(const ConfigDocument& document, const Json& object, const std::string& path) {
    read_members(document, object, {path, ""});
    settle();
    report_ignored(document.name);
  }

  /// Prefixes of a value: the path of its object in the document and its key within the part, each with a trailing dot.
  struct LeafPath {
    std::string object, key;
  };
  /// Visits every leaf value of an object.
  void read_members(const ConfigDocument& document, const Json& object, const LeafPath& path) {
    for (const auto& [name, value] : object.items()) {
      const std::string key = path.key + name, written = path.object + key;
      const Setting leaf{written, document.place_of(written), value};
      if (value.is_object() && !value.empty())
        read_members(document, value, {path.object, key + "."});
      else if (key == "deepspeed_config.deepspeed_config_file")
        Launcher(draft_, "deepspeed").read(leaf, document);
      else
        take(table_, key, leaf);
    }
  }

  /// Applies the row of one value. Some keys of accelerate belong to another table.
  void take(const DialectTable& table, const std::string& key, const Setting& leaf) {
    constexpr std::string_view kFsdp = "fsdp_config.", kPrefix = "fsdp_";
    if (const auto name = table.object("deepspeed").find(key); name != table.object("deepspeed").end())
      return take(dialect_table("deepspeed"), *name, leaf);
    if (&table == &dialect_table("accelerate") && key.starts_with(kFsdp))
      return take(dialect_table("fsdp"), key.substr(kFsdp.size()), leaf);
    if (&table == &dialect_table("fsdp") && key.starts_with(kPrefix))
      return take(table, key.substr(kPrefix.size()), leaf);
    const KeyRow* row = row_of(table, key);
    if (row == nullptr) return unknown(key, leaf, table.names());
    if (row->is_translated()) return leaf.value == "auto" ? void() : take_row(*row, leaf);
    if (row->status == KeyStatus::ignored) return row->reason.empty() ? void() : ignore(leaf);
    const bool decides = row->name.ends_with('*') || key == row->name || key == row->name + ".enabled";
    if (decides && !is_unset(leaf.value)) refuse(leaf, row->reason);
  }

  void take_row(const KeyRow& row, const Setting& leaf) {
    const Translation made = translate(row, plain(leaf.value));
    if (!made.problem.empty()) return refuse(leaf, made.problem, row.remedy);
    for (const std::string& remark : made.remarks) draft_.note(leaf, ": " + remark);
    if (made.settings.empty()) ignore(leaf);
    for (const auto& [key, value] : made.settings) set(key, leaf, value);
  }

  /// Names of one optimizer that differ only in implementation do not contradict each other.
  void set(const std::string& key, const Setting& leaf, const Json& value) {
    const Setting* given = draft_.find(key);
    if (!given) return draft_.offer(key, leaf.with(value));
    const auto rule = [](const Json& name) {
      const NamedOptimizer* o = name.is_string() ? find_optimizer(name.get<std::string>()) : nullptr;
      return o ? o->rule : "?";
    };
    const bool same = given->value == value || (key == "optim" && rule(given->value) == rule(value));
    if (!same)
      differ(leaf.with(value), *given, "make them equal, or set the former to \"auto\" or remove it to use the latter");
  }

  void differ(const Setting& leaf, const Setting& given, std::string remedy) {
    draft_.problem(leaf,
                   fmt::format(" is {}, but \"{}\" is {} ({})", show(leaf.written, leaf.value), given.written,
                               show(given.written, given.value), given.place),
                   std::move(remedy));
  }

  void refuse(const Setting& leaf, std::string_view why, std::string_view remedy = {}) {
    draft_.problem(leaf, fmt::format(": {} cannot be honored: {}", show(leaf.written, leaf.value), why),
                   std::string(remedy.empty() ? "remove the key" : remedy));
  }

  void ignore(const Setting& leaf) {
    if (!is_unset(plain(leaf.value)))
      ignored_.push_back(
          {.level = RemarkLevel::silent, .origin = leaf.place, .ignored = leaf.written, .value = leaf.value});
  }

  void unknown(const std::string& key, const Setting& leaf, const std::vector<std::string_view>& known) {
    if (std::ranges::any_of(known, [&](std::string_view name) { return holds(key, name); })) {
      if (!is_unset(leaf.value)) draft_.problem(leaf, " expected an object, got " + show(leaf.value));
      return;
    }
    const std::string near = hint(draft_.diagnostics, key, known);
    draft_.diagnostics.problem(leaf.place, fmt::format("unknown key \"{}\"", leaf.written),
                               near.empty() ? "remove the key" : fmt::format("did you mean \"{}\"?", near));
  }

  /// Reports all ignored keys of a file in one note.
  void report_ignored(const std::string& name) {
    if (ignored_.empty()) return;
    constexpr std::size_t kShown = 4;
    const std::string why = fmt::format("{} without effect here", table_.text("about"));
    std::vector<std::string> shown;
    for (Remark& remark : ignored_) {
      if (shown.size() < kShown) shown.push_back(remark.ignored);
      remark.text = why;
    }
    const std::size_t all = ignored_.size();
    draft_.diagnostics.note(
        name, fmt::format("{} {} of {}: {}{}", all, all == 1 ? "key" : "keys", why, fmt::join(shown, ", "),
                          all > kShown ? fmt::format(" and {} more", all - kShown) : ""));
    for (Remark& remark : ignored_) draft_.diagnostics.say(std::move(remark));
  }

  /// Resolves pending settings, which depend on others.
  void settle() {
    const auto pending = [&](const char* key, void (Launcher::*settle)(const Setting&)) {
      if (const auto found = draft_.settings.extract(key); found) (this->*settle)(found.mapped());
    };
    pending("~mixed_precision", &Launcher::precision);
    pending("~num_processes", &Launcher::processes);
    pending("~betas", &Launcher::betas);
    pending("~warmup_num_steps", &Launcher::warmup_steps);
    pending("~total_num_steps", &Launcher::total_steps);
    pending("~warmup_start", &Launcher::warmup_start);
    pending("~schedule", &Launcher::warmup_kind);
    pending("~train_batch_size", &Launcher::batch);
    pending("~fsdp_checkpointing", &Launcher::checkpointing);
  }

  /// As in transformers, FSDP's own switch turns recomputation on, and giving both is an error.
  void checkpointing(const Setting& leaf) {
    const Setting* given = draft_.find("gradient_checkpointing");
    if (!given || given->value.is_null() || (given->value == false && !given->overrides())) {
      draft_.settings["gradient_checkpointing"] = leaf;
    } else if (given->value == true) {
      draft_.problem(leaf,
                     fmt::format(" and \"{}\" ({}) are both true, which transformers refuses: they ask for the same "
                                 "recomputation",
                                 given->written, given->place),
                     "keep one of them");
    } else if (given->value == false) {
      draft_.note(leaf, fmt::format(" has no effect: \"{}\" is false on the command line", given->written));
    }
  }

  void betas(const Setting& leaf) {
    if (!leaf.value.is_array() || leaf.value.size() != 2) return refuse(leaf, "betas are two numbers", "use \"auto\"");
    set("adam_beta1", leaf, leaf.value[0]);
    set("adam_beta2", leaf, leaf.value[1]);
  }

  void warmup_steps(const Setting& leaf) {
    const Setting* ratio = draft_.find("warmup_ratio");
    if (!ratio || is_unset(ratio->value)) return set("warmup_steps", leaf, leaf.value);
    differ(leaf, *ratio, "use \"auto\", or remove the latter");
  }

  void total_steps(const Setting& leaf) {
    if (draft_.find("max_steps")) return set("max_steps", leaf, leaf.value);
    refuse(leaf, "the number of steps depends on the rows", "use \"auto\", or set max_steps");
  }

  void warmup_start(const Setting& leaf) {
    constexpr double kAlmostZero = 1e-7;
    if (!leaf.value.is_number() || leaf.value > kAlmostZero) refuse(leaf, "warm-up starts at 0", "use 0");
  }

  void warmup_kind(const Setting& leaf) {
    if (const auto kind = draft_.settings.extract("~warmup_type"); kind && kind.mapped().value == "linear") return;
    draft_.note(leaf, ": warm-up is linear here; in DeepSpeed it is logarithmic unless warmup_type is linear");
  }

  /// As in transformers, training arguments take precedence.
  void precision(const Setting& leaf) {
    for (const char* key : {"bf16", "fp16"}) {
      const Setting* given = draft_.find(key);
      if (!given) continue;
      if ((given->value == true) != (leaf.value == key))
        draft_.note(leaf, fmt::format(" {} has no effect: \"{}\" is {} ({})", show(leaf.value), given->written,
                                      show(given->value), given->place));
      return;
    }
    set(leaf.value.get<std::string>(), leaf, true);
  }

  void processes(const Setting& leaf) {
    const Setting* ranks = draft_.find("nproc");
    if (!leaf.value.is_number_integer() || leaf.value <= 1 || (ranks && ranks->value == leaf.value)) return;
    draft_.note(leaf, fmt::format(" is {} there and nproc {} here: an update has fewer rows; increase "
                                  "gradient_accumulation_steps to compensate",
                                  show(leaf.value), ranks ? show(ranks->value) : "1"));
  }

  /// In DeepSpeed train_batch_size = micro-batch x accumulation x devices, and a missing factor is derived. Devices
  /// that share rows count as one.
  void batch(const Setting& leaf) {
    if (!leaf.value.is_number()) return refuse(leaf, "a batch is a number of rows", "use \"auto\"");
    const double total = leaf.value.get<double>(), micro = draft_.positive("per_device_train_batch_size").value_or(0),
                 windows = draft_.positive("gradient_accumulation_steps").value_or(0),
                 sharing = std::max(1.0, draft_.positive("context_parallel_size").value_or(1)),
                 ranks = std::max(1.0, draft_.positive("nproc").value_or(1) / sharing);
    const double known = std::max(1.0, micro) * std::max(1.0, windows) * ranks;
    const bool divides = total > 0 && std::fmod(total, known) == 0 && (micro > 0 || windows > 0);
    if (divides && (windows == 0 || micro == 0))
      return draft_.offer(windows == 0 ? "gradient_accumulation_steps" : "per_device_train_batch_size",
                          leaf.with(total / known));
    if (total == known && micro > 0) return;
    draft_.problem(leaf,
                   fmt::format(" is {}, but per_device_train_batch_size x gradient_accumulation_steps x nproc{} is {}",
                               show(leaf.value), sharing > 1 ? " / context_parallel_size" : "",
                               micro > 0 && windows > 0 ? fmt::format("{}", known) : "not given"),
                   "use \"auto\", or make it the product of the others");
  }

  Draft& draft_;
  const DialectTable& table_;
  std::vector<Remark> ignored_ = {};
};

}  // namespace

void add_launcher_settings(Draft& draft, const ConfigDocument& config) {
  if (const Setting* s = draft.find("~accelerate_config")) {
    Launcher accelerate(draft, "accelerate");
    if (!accelerate.read_preset(*s)) accelerate.read(*s, config);
  }
  if (const Setting* s = draft.find("~deepspeed")) Launcher(draft, "deepspeed").read(*s, config);
  const Setting *words = draft.find("~fsdp"), *options = draft.find("~fsdp_config");
  const bool on = words && !is_unset(words->value), configured = options && !is_unset(options->value);
  if (on && configured) Launcher(draft, "fsdp").read(*options, config);
  if (on) Launcher(draft, "fsdp").read_words(*words);
  if (!on && configured) draft.note(*options, " has no effect without fsdp");
}

}  // namespace qtrain
