#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <functional>
#include <sstream>

#include "config/dialect_table.h"
#include "config/document.h"
#include "config/keys.h"
#include "config/setting.h"
#include "optim/table.h"

/// What the configurations of DeepSpeed, FSDP and accelerate set, say and leave without effect, by their tables.
namespace qtrain {
namespace {

/// An object of a launcher's configuration: in the config, or in a file that it names.
struct LauncherPart {
  const ConfigDocument& document;
  Json value;
  std::string path = {};  ///< of the object in the document, with a dot behind it unless it is the whole
};

/// A value of a launcher's configuration.
struct Leaf {
  std::string key;      ///< "zero_optimization.offload_optimizer.device"
  std::string written;  ///< the same with the path of the object before it
  std::string place;
  Json value;

  bool is(std::string_view name) const { return key == name; }
  /// The value without regard to the case of letters, and with true and false as such.
  Json plain() const {
    if (!value.is_string()) return value;
    std::string lower = value.get<std::string>();
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (lower == "true" || lower == "false") return lower == "true";
    return lower;
  }
  /// The leaf as a member of a part of the object.
  Leaf under(std::string name) const { return {std::move(name), written, place, value}; }
};

void add_leaves(const Json& value, const std::string& key, std::vector<std::pair<std::string, Json>>& out) {
  if (!value.is_object() || value.empty()) return out.emplace_back(key, value), void();
  for (const auto& [name, member] : value.items()) add_leaves(member, key.empty() ? name : key + "." + name, out);
}

/// Every value in the object that is none itself, with its path.
std::vector<Leaf> leaves_of(const LauncherPart& part) {
  std::vector<std::pair<std::string, Json>> found;
  if (!part.value.empty()) add_leaves(part.value, "", found);
  std::vector<Leaf> leaves;
  for (auto& [key, value] : found) {
    const std::string written = part.path + key;
    leaves.push_back({key, written, part.document.place_of(written), std::move(value)});
  }
  return leaves;
}

/// Whether a dotted key is this one or a member of it.
bool covers(std::string_view part, std::string_view key) {
  return key.starts_with(part) && (key.size() == part.size() || key[part.size()] == '.');
}

/// The row of a key, or of a part that it is in.
const KeyRow* row_of(const DialectTable& table, std::string_view key) {
  if (const KeyRow* row = table.find(key)) return row;
  const auto at = std::ranges::find_if(
      table.rows, [&](const KeyRow& row) { return !row.is_translated() && covers(row.name, key); });
  return at == table.rows.end() ? nullptr : &*at;
}

/// Names that unknown keys are held against.
std::vector<std::string_view> names_in(const DialectTable& table) {
  std::vector<std::string_view> names;
  for (const KeyRow& row : table.rows)
    if (!row.name.ends_with('*')) names.emplace_back(row.name);
  return names;
}

class LauncherReader {
 public:
  explicit LauncherReader(Draft& draft) : draft_(draft) {}

  /// The object that a value is, or that the file holds which it names; `read` is given it.
  void open(const Setting& setting, const ConfigDocument& config, std::string_view what,
            const std::function<void(const LauncherPart&)>& read) {
    if (says_nothing(setting.value)) return;
    if (setting.value.is_object()) return read({config, setting.value, setting.written + "."});
    if (!setting.value.is_string())
      return problem(setting.place,
                     fmt::format("\"{}\" expected a file or an object, got {}", setting.written, show(setting.value)));
    const auto name = setting.value.get<std::string>();
    const auto file = draft_.named_file(name);
    if (!file)
      return problem(setting.place, fmt::format("\"{}\": no such file \"{}\"", setting.written, name),
                     "paths are looked for as they stand and beside the config");
    try {
      const ConfigDocument document = read_config_document(*file);
      if (document.value.is_object()) return read({document, without_comments(document.value)});
      problem(document.name, fmt::format("{} is an object of keys and values, not {}", what, show(document.value)));
    } catch (const Error& e) {  // one problem among others
      draft_.judge.problem(e.text());
    }
  }

  void deepspeed(const LauncherPart& part) {
    const std::vector<Leaf> leaves = leaves_of(part);
    for (const Leaf& leaf : leaves) deepspeed_leaf(leaf);
    for (const Leaf& leaf : leaves)  // which needs the others
      if (leaf.is("train_batch_size")) deepspeed_batch(leaf);
    deepspeed_warmup(leaves);
    tell_ignored(part, "DeepSpeed");
  }

  void fsdp(const Setting* chosen, const Setting* options, const ConfigDocument& config) {
    const bool on = chosen && !says_nothing(chosen->value);
    if (on) fsdp_words(*chosen);
    if (!options || says_nothing(options->value)) return;
    if (!on) return note(options->place, fmt::format("\"{}\" has no effect without fsdp", options->written));
    open(*options, config, "fsdp_config", [&](const LauncherPart& part) {
      for (const Leaf& leaf : leaves_of(part)) fsdp_leaf(leaf);
      tell_ignored(part, "FSDP");
    });
  }

  void accelerate(const LauncherPart& part) {
    for (const Leaf& leaf : leaves_of(part)) accelerate_leaf(leaf, part);
    tell_ignored(part, "accelerate");
  }

 private:
  void note(const std::string& place, std::string text) { draft_.judge.note(place, std::move(text)); }
  void problem(const std::string& place, std::string cause, std::string remedy = {}) {
    draft_.judge.problem(place, std::move(cause), std::move(remedy));
  }

  /// A value of a launcher for a key of ours: it has to be the value that the key was given, if it was. Names of one
  /// optimizer that differ in how it is computed do not contradict each other.
  void set(const Leaf& leaf, const std::string& key, const Json& value) {
    const Setting* given = draft_.find(key);
    if (!given) return draft_.offer(key, {leaf.written, leaf.place, value});
    if (given->value == value) return;
    const auto rule = [](const Json& name) {
      const NamedOptimizer* o = name.is_string() ? find_optimizer(name.get<std::string>()) : nullptr;
      return o ? o->rule : "?";
    };
    if (key != "optim" || rule(given->value) != rule(value))
      differ(leaf, value, *given,
             "the two have to be equal: \"auto\" in the former, or its removal, takes over the latter");
  }
  void differ(const Leaf& leaf, const Json& value, const Setting& given, std::string remedy) {
    problem(leaf.place,
            fmt::format("\"{}\" is {}, but \"{}\" is {} ({})", leaf.written, show(value), given.written,
                        show(given.value), given.place),
            std::move(remedy));
  }
  void refuse(const Leaf& leaf, std::string_view why, std::string_view remedy = {}) {
    problem(leaf.place, fmt::format("\"{}\": {} cannot be honored: {}", leaf.written, show(leaf.value), why),
            std::string(remedy.empty() ? "remove the key" : remedy));
  }
  void ignore(const Leaf& leaf) {
    if (!says_nothing(leaf.value)) ignored_[leaf.written] = leaf.value;
  }

  /// One value as its row in a table says.
  void apply(const DialectTable& table, const Leaf& leaf) {
    const KeyRow* row = row_of(table, leaf.key);
    if (row == nullptr) return unknown(leaf, names_in(table));
    if (row->is_translated()) return leaf.value == "auto" ? void() : translate_leaf(*row, leaf);
    if (row->status == KeyStatus::ignored) return row->reason.empty() ? void() : ignore(leaf);
    const bool decides = row->name.ends_with('*') || leaf.is(row->name) || leaf.is(row->name + ".enabled");
    if (decides && !says_nothing(leaf.value)) refuse(leaf, row->reason);
  }

  void translate_leaf(const KeyRow& row, const Leaf& leaf) {
    using R = LauncherReader;
    static const std::map<std::string_view, void (R::*)(const Leaf&)> kConversions{
        {"betas", &R::betas},
        {"warmup_steps", &R::warmup_steps},
        {"total_steps", &R::total_steps},
        {"warmup_start", &R::warmup_start},
        {"schedule_floor", &R::schedule_floor},
        {"part", &R::part},
        {"recomputation", &R::recomputation},
        {"precision", &R::precision},
        {"processes", &R::processes}};
    const Json plain = leaf.plain();
    for (const auto& [refused, why] : row.refused)
      if (plain == refused) return refuse(leaf, why, row.remedy);
    if (!row.convert.empty()) return (this->*kConversions.at(row.convert))(leaf);
    if (row.target.empty()) return ignore(leaf);
    if (row.map.empty()) return set(leaf, row.target, leaf.value);
    if (const Json* ours = row.meaning(plain)) return set(leaf, row.target, *ours);
    if (!row.otherwise.empty() && !says_nothing(leaf.value)) refuse(leaf, row.otherwise, row.remedy);
  }

  void unknown(const Leaf& leaf, const std::vector<std::string_view>& known) {
    constexpr std::size_t kMaxHints = 20;  // each takes a look at all names
    const auto near = draft_.judge.count_problems() < kMaxHints ? nearest(leaf.key, known) : std::string_view();
    if (near == leaf.key && leaf.value.is_object() && leaf.value.empty()) return;  // a part that asks for nothing
    problem(leaf.place, fmt::format("unknown key \"{}\"", leaf.written),
            near.empty() ? "remove the key" : fmt::format("did you mean \"{}\"?", near));
  }

  /// Once for all keys of a file.
  void tell_ignored(const LauncherPart& part, std::string_view what) {
    if (ignored_.empty()) return;
    constexpr std::size_t kShown = 4;
    const std::string why = fmt::format("{} without effect here, on one device", what);
    std::vector<std::string> names;
    for (const auto& [key, value] : ignored_.items()) names.push_back(key);
    const std::size_t all = names.size();
    names.resize(std::min(all, kShown));
    note(part.document.name,
         fmt::format("{} {} of {}: {}{}", all, all == 1 ? "key" : "keys", why, fmt::join(names, ", "),
                     all > kShown ? fmt::format(" and {} more", all - kShown) : ""));
    for (const auto& [key, value] : ignored_.items())
      draft_.judge.say({.level = RemarkLevel::silent,
                        .origin = part.document.place_of(key),
                        .text = why,
                        .ignored = key,
                        .value = value});
    ignored_ = Json::object();
  }

  // Conversions that rows name, of values that are not "auto".

  void betas(const Leaf& leaf) {
    if (!leaf.value.is_array() || leaf.value.size() != 2) return refuse(leaf, "betas are two numbers", "use \"auto\"");
    set(leaf, "adam_beta1", leaf.value[0]);
    set(leaf, "adam_beta2", leaf.value[1]);
  }

  void warmup_steps(const Leaf& leaf) {
    const Setting* ratio = draft_.find("warmup_ratio");
    if (!ratio || says_nothing(ratio->value)) return set(leaf, "warmup_steps", leaf.value);
    differ(leaf, leaf.value, *ratio, "use \"auto\", or remove the latter");
  }

  void total_steps(const Leaf& leaf) {
    if (draft_.has("max_steps")) return set(leaf, "max_steps", leaf.value);
    refuse(leaf, "how many steps there are depends on the rows", "use \"auto\", or set max_steps");
  }

  void warmup_start(const Leaf& leaf) {
    constexpr double kAlmostZero = 1e-7;
    if (!leaf.value.is_number() || leaf.value > kAlmostZero) refuse(leaf, "warm-up begins at 0", "use 0");
  }

  void schedule_floor(const Leaf& leaf) {
    if (!leaf.value.is_number() || leaf.value <= 0) return;
    draft_.settings["lr_scheduler_type"] = {leaf.written, leaf.place, "cosine_with_min_lr"};
    set(leaf, "lr_scheduler_kwargs", {{"min_lr_rate", leaf.value}});
  }

  /// A part whose members have rows: here it is empty, or no object.
  void part(const Leaf& leaf) {
    if (!says_nothing(leaf.value))
      problem(leaf.place, fmt::format("\"{}\" expected an object, got {}", leaf.written, show(leaf.value)));
  }

  void recomputation(const Leaf& leaf) {
    const Setting* given = draft_.find("gradient_checkpointing");
    if (leaf.plain() == true && !(given && given->value.is_string())) set(leaf, "gradient_checkpointing", true);
  }

  /// As in transformers, the arguments of the training win.
  void precision(const Leaf& leaf) {
    if (leaf.value == "no" || says_nothing(leaf.value)) return;
    if (leaf.value != "bf16" && leaf.value != "fp16")
      return refuse(leaf, "products are in float32, bf16 or fp16", "use no, bf16 or fp16");
    for (const char* key : {"bf16", "fp16"}) {
      const Setting* given = draft_.find(key);
      if (!given) continue;
      if ((given->value == true) != (leaf.value == key))
        note(leaf.place, fmt::format("\"{}\" {} has no effect: \"{}\" is {} ({})", leaf.written, show(leaf.value),
                                     given->written, show(given->value), given->place));
      return;
    }
    draft_.offer(leaf.value.get<std::string>(), {leaf.written, leaf.place, true});
  }

  void processes(const Leaf& leaf) {
    const Setting* ranks = draft_.find("nproc");
    if (!leaf.value.is_number_integer() || leaf.value <= 1 || (ranks && ranks->value == leaf.value)) return;
    note(leaf.place, fmt::format("\"{}\" is {} there and nproc {} here: an update sees fewer rows; "
                                 "gradient_accumulation_steps makes up for it",
                                 leaf.written, show(leaf.value), ranks ? show(ranks->value) : "1"));
  }

  /// Members of zero_optimization are about several devices, but for those that have a row.
  void deepspeed_leaf(const Leaf& leaf) {
    constexpr std::string_view kZero = "zero_optimization.";
    const DialectTable& table = dialect_table("deepspeed");
    if (leaf.is("zero_optimization.offload_param.device") && !says_nothing(leaf.value))
      note(leaf.place, fmt::format("\"{}\" has no effect: weights stay on the device, load_in_4bit makes them smaller",
                                   leaf.written));
    if (leaf.is("zero_optimization.offload_optimizer.device") && leaf.value == "nvme")
      note(leaf.place, "the optimizer's state goes to the host's memory, not to disk");
    if (!leaf.key.starts_with(kZero) || table.find(leaf.key)) return apply(table, leaf);
    const std::string member = leaf.key.substr(kZero.size());
    const std::vector<std::string_view> known = table.list("zero_optimization");
    const bool is_known = std::ranges::find(known, member.substr(0, member.find('.'))) != known.end();
    is_known ? ignore(leaf) : unknown(leaf.under(member), known);
  }

  /// DeepSpeed has train_batch_size = micro-batch x accumulation x devices, and fills in the one that is missing.
  void deepspeed_batch(const Leaf& leaf) {
    if (leaf.value == "auto") return;
    const auto number = [&](const char* key) {
      const Setting* s = draft_.find(key);
      return s && s->value.is_number() ? std::max(0.0, s->value.get<double>()) : 0;
    };
    if (!leaf.value.is_number()) return refuse(leaf, "a batch is a number of rows", "use \"auto\"");
    const double total = leaf.value.get<double>(), micro = number("per_device_train_batch_size"),
                 windows = number("gradient_accumulation_steps"), ranks = std::max(1.0, number("nproc"));
    const double known = std::max(1.0, micro) * std::max(1.0, windows) * ranks;
    const bool divides = total > 0 && std::fmod(total, known) == 0 && (micro > 0 || windows > 0);
    if (divides && (windows == 0 || micro == 0))
      return draft_.offer(windows == 0 ? "gradient_accumulation_steps" : "per_device_train_batch_size",
                          {leaf.written, leaf.place, total / known});
    if (total == known && micro > 0) return;
    problem(
        leaf.place,
        fmt::format("\"{}\" is {}, but per_device_train_batch_size x gradient_accumulation_steps x nproc is {}",
                    leaf.written, show(leaf.value), micro > 0 && windows > 0 ? fmt::format("{}", known) : "not given"),
        "use \"auto\", or numbers whose product it is");
  }

  void deepspeed_warmup(const std::vector<Leaf>& leaves) {
    const auto type = std::ranges::find(leaves, "scheduler.type", &Leaf::key),
               kind = std::ranges::find(leaves, "scheduler.params.warmup_type", &Leaf::key);
    if (type == leaves.end() || (kind != leaves.end() && kind->value == "linear")) return;
    note(type->place,
         fmt::format("\"{}\": warm-up is linear here; that of DeepSpeed is logarithmic unless warmup_type is linear",
                     type->written));
  }

  void fsdp_words(const Setting& chosen) {
    std::vector<std::string> words;
    if (chosen.value.is_string()) {
      std::istringstream text(chosen.value.get<std::string>());
      for (std::string word; text >> word;) words.push_back(word);
    }
    for (const Json& word : chosen.value.is_array() ? chosen.value : Json::array())
      words.push_back(word.is_string() ? word.get<std::string>() : show(word));
    if (words.empty()) words.push_back(show(chosen.value));
    if (words[0] == "true" || words[0] == "True") return;  // the switch that it has become
    const std::vector<std::string_view> known = dialect_table("fsdp").list("words");
    for (const std::string& word : words) {
      const Leaf leaf{word, chosen.written, chosen.place, word};
      if (word == "offload") set(leaf, "optimizer_offload", true);
      if (std::ranges::find(known, word) == known.end())
        refuse(leaf, fmt::format("the words of fsdp are {}", fmt::join(known, ", ")), "use true and fsdp_config");
    }
    note(chosen.place,
         fmt::format("\"{}\" shards over several devices; on one there is nothing to shard", chosen.written));
  }

  void fsdp_leaf(const Leaf& leaf) {
    const bool prefixed = leaf.key.starts_with("fsdp_");  // as accelerate writes it
    apply(dialect_table("fsdp"), leaf.under(prefixed ? leaf.key.substr(5) : leaf.key));
  }

  void accelerate_leaf(const Leaf& leaf, const LauncherPart& part) {
    constexpr std::string_view kDeepspeed = "deepspeed_config.", kFsdp = "fsdp_config.";
    if (leaf.is("deepspeed_config.deepspeed_config_file"))
      return open({leaf.written, leaf.place, leaf.value}, part.document, "a DeepSpeed config",
                  [&](const LauncherPart& file) { deepspeed(file); });
    if (leaf.key.starts_with(kDeepspeed)) {
      const Json& names = dialect_table("accelerate").object("deepspeed");
      if (const auto name = names.find(leaf.key.substr(kDeepspeed.size())); name != names.end())
        return deepspeed_leaf(leaf.under(*name));
    }
    if (leaf.key.starts_with(kFsdp)) return fsdp_leaf(leaf.under(leaf.key.substr(kFsdp.size())));
    apply(dialect_table("accelerate"), leaf);
  }

  Draft& draft_;
  Json ignored_ = Json::object();
};

}  // namespace

void add_launcher_settings(Draft& draft, const ConfigDocument& config) {
  LauncherReader reader(draft);
  const auto pending = [&](std::string_view key) { return draft.find(kPending + std::string(key)); };
  const Json& presets = dialect_table("accelerate").object("presets");
  if (const Setting* s = pending("accelerate_config"); s && std::ranges::find(presets, s->value) != presets.end())
    draft.judge.note(s->place, fmt::format("\"{}\": {} has no effect on one device", s->written, show(s->value)));
  else if (s)
    reader.open(*s, config, "an accelerate config", [&](const LauncherPart& part) { reader.accelerate(part); });
  if (const Setting* s = pending("deepspeed"))
    reader.open(*s, config, "a DeepSpeed config", [&](const LauncherPart& part) { reader.deepspeed(part); });
  reader.fsdp(pending("fsdp"), pending("fsdp_config"), config);
}

}  // namespace qtrain
