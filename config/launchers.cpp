#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "config/keys.h"
#include "config/launcher_rows.h"
#include "config/settle.h"

/// What the configurations of DeepSpeed, FSDP and accelerate set, say and leave without effect, by their tables.
namespace qtrain {
namespace {

class Launchers {
 public:
  Launchers(Draft& draft, const ConfigDocument& config) : draft_(draft), config_(config) {}

  void deepspeed(const Setting& setting, const ConfigDocument& document) {
    rows_.open(setting, document, "DeepSpeed", [&](const Leaves& leaves, const ConfigDocument&) {
      for (const Leaf& leaf : leaves) rows_.apply("deepspeed", leaf);
      for (const Leaf& leaf : leaves)  // which needs the others
        if (leaf.key == "train_batch_size") deepspeed_batch(leaf);
      deepspeed_warmup(leaves);
    });
  }

  void fsdp(const Setting* chosen, const Setting* options) {
    const bool on = chosen && !says_nothing(chosen->value);
    if (on) fsdp_words(*chosen);
    if (!options || says_nothing(options->value)) return;
    if (!on) return judge().note(options->place, fmt::format("\"{}\" has no effect without fsdp", options->written));
    rows_.open(*options, config_, "FSDP", [&](const Leaves& leaves, const ConfigDocument&) {
      for (const Leaf& leaf : leaves) fsdp_leaf(leaf);
    });
  }

  void accelerate(const Setting& setting) {
    const Json& presets = dialect_table("accelerate").object("presets");
    if (std::ranges::find(presets, setting.value) != presets.end())
      return judge().note(setting.place,
                          fmt::format("\"{}\": {} has no effect on one device", setting.written, show(setting.value)));
    rows_.open(setting, config_, "accelerate", [&](const Leaves& leaves, const ConfigDocument& document) {
      for (const Leaf& leaf : leaves) accelerate_leaf(leaf, document);
    });
  }

 private:
  Judge& judge() { return draft_.judge; }

  void betas(const Leaf& leaf) {
    if (!leaf.value.is_array() || leaf.value.size() != 2)
      return rows_.refuse(leaf, "betas are two numbers", "use \"auto\"");
    rows_.set(leaf, "adam_beta1", leaf.value[0]);
    rows_.set(leaf, "adam_beta2", leaf.value[1]);
  }

  void warmup_steps(const Leaf& leaf) {
    const Setting* ratio = draft_.find("warmup_ratio");
    if (!ratio || says_nothing(ratio->value)) return rows_.set(leaf, "warmup_steps", leaf.value);
    rows_.differ(leaf, leaf.value, *ratio, "use \"auto\", or remove the latter");
  }

  void total_steps(const Leaf& leaf) {
    if (draft_.has("max_steps")) return rows_.set(leaf, "max_steps", leaf.value);
    rows_.refuse(leaf, "how many steps there are depends on the rows", "use \"auto\", or set max_steps");
  }

  void warmup_start(const Leaf& leaf) {
    constexpr double kAlmostZero = 1e-7;
    if (!leaf.value.is_number() || leaf.value > kAlmostZero) rows_.refuse(leaf, "warm-up begins at 0", "use 0");
  }

  void schedule_floor(const Leaf& leaf) {
    if (!leaf.value.is_number() || leaf.value <= 0) return;
    draft_.settings["lr_scheduler_type"] = {leaf.written, leaf.place, "cosine_with_min_lr"};
    rows_.set(leaf, "lr_scheduler_kwargs", {{"min_lr_rate", leaf.value}});
  }

  /// As in transformers, the arguments of the training win.
  void precision(const Leaf& leaf) {
    if (leaf.value == "no" || says_nothing(leaf.value)) return;
    if (leaf.value != "bf16" && leaf.value != "fp16")
      return rows_.refuse(leaf, "GEMMs are in float32, bf16 or fp16", "use no, bf16 or fp16");
    for (const char* key : {"bf16", "fp16"}) {
      const Setting* given = draft_.find(key);
      if (!given) continue;
      if ((given->value == true) != (leaf.value == key))
        judge().note(leaf.place, fmt::format("\"{}\" {} has no effect: \"{}\" is {} ({})", leaf.written,
                                             show(leaf.value), given->written, show(given->value), given->place));
      return;
    }
    draft_.offer(leaf.value.get<std::string>(), {leaf.written, leaf.place, true});
  }

  void processes(const Leaf& leaf) {
    const Setting* ranks = draft_.find("nproc");
    if (!leaf.value.is_number_integer() || leaf.value <= 1 || (ranks && ranks->value == leaf.value)) return;
    judge().note(leaf.place, fmt::format("\"{}\" is {} there and nproc {} here: an update sees fewer rows; "
                                         "gradient_accumulation_steps makes up for it",
                                         leaf.written, show(leaf.value), ranks ? show(ranks->value) : "1"));
  }

  /// DeepSpeed has train_batch_size = micro-batch x accumulation x devices, and fills in the one that is missing.
  void deepspeed_batch(const Leaf& leaf) {
    if (leaf.value == "auto") return;
    const auto number = [&](const char* key) {
      const Setting* s = draft_.find(key);
      return s && s->value.is_number() ? std::max(0.0, s->value.get<double>()) : 0;
    };
    if (!leaf.value.is_number()) return rows_.refuse(leaf, "a batch is a number of rows", "use \"auto\"");
    const double total = leaf.value.get<double>(), micro = number("per_device_train_batch_size"),
                 windows = number("gradient_accumulation_steps"), ranks = std::max(1.0, number("nproc"));
    const double known = std::max(1.0, micro) * std::max(1.0, windows) * ranks;
    const bool divides = total > 0 && std::fmod(total, known) == 0 && (micro > 0 || windows > 0);
    if (divides && (windows == 0 || micro == 0))
      return draft_.offer(windows == 0 ? "gradient_accumulation_steps" : "per_device_train_batch_size",
                          {leaf.written, leaf.place, total / known});
    if (total == known && micro > 0) return;
    judge().problem(
        leaf.place,
        fmt::format("\"{}\" is {}, but per_device_train_batch_size x gradient_accumulation_steps x nproc is {}",
                    leaf.written, show(leaf.value), micro > 0 && windows > 0 ? fmt::format("{}", known) : "not given"),
        "use \"auto\", or numbers whose product it is");
  }

  void deepspeed_warmup(const std::vector<Leaf>& leaves) {
    const auto type = std::ranges::find(leaves, "scheduler.type", &Leaf::key),
               kind = std::ranges::find(leaves, "scheduler.params.warmup_type", &Leaf::key);
    if (type == leaves.end() || (kind != leaves.end() && kind->value == "linear")) return;
    judge().note(
        type->place,
        fmt::format("\"{}\": warm-up is linear here; that of DeepSpeed is logarithmic unless warmup_type is linear",
                    type->written));
  }

  void fsdp_words(const Setting& chosen) {
    std::vector<std::string> words;
    for (const Json& part : chosen.value.is_array() ? chosen.value : Json::array({chosen.value})) {
      std::istringstream text(part.is_string() ? part.get<std::string>() : show(part));
      for (std::string word; text >> word;) words.push_back(word);
    }
    if (words.empty()) words.push_back(show(chosen.value));
    if (words[0] == "true" || words[0] == "True") return;  // the switch that it has become
    const std::vector<std::string_view> known = dialect_table("fsdp").list("words");
    for (const std::string& word : words) {
      const Leaf leaf{word, chosen.written, chosen.place, word};
      if (word == "offload") rows_.set(leaf, "optimizer_offload", true);
      if (std::ranges::find(known, word) == known.end())
        rows_.refuse(leaf, fmt::format("the words of fsdp are {}", fmt::join(known, ", ")), "use true and fsdp_config");
    }
    judge().note(chosen.place,
                 fmt::format("\"{}\" shards over several devices; on one there is nothing to shard", chosen.written));
  }

  void fsdp_leaf(const Leaf& leaf) {
    const bool prefixed = leaf.key.starts_with("fsdp_");  // as accelerate writes it
    rows_.apply("fsdp", leaf.under(prefixed ? leaf.key.substr(5) : leaf.key));
  }

  void accelerate_leaf(const Leaf& leaf, const ConfigDocument& document) {
    constexpr std::string_view kDeepspeed = "deepspeed_config.", kFsdp = "fsdp_config.";
    if (leaf.key == "deepspeed_config.deepspeed_config_file")
      return deepspeed({leaf.written, leaf.place, leaf.value}, document);
    if (leaf.key.starts_with(kDeepspeed)) {
      const Json& names = dialect_table("accelerate").object("deepspeed");
      if (const auto name = names.find(leaf.key.substr(kDeepspeed.size())); name != names.end())
        return rows_.apply("deepspeed", leaf.under(*name));
    }
    if (leaf.key.starts_with(kFsdp)) return fsdp_leaf(leaf.under(leaf.key.substr(kFsdp.size())));
    rows_.apply("accelerate", leaf);
  }

  LauncherRows::Conversions conversions() {
    const auto by = [this](void (Launchers::*convert)(const Leaf&)) {
      return [this, convert](const Leaf& leaf) { (this->*convert)(leaf); };
    };
    return {{"betas", by(&Launchers::betas)},
            {"warmup_steps", by(&Launchers::warmup_steps)},
            {"total_steps", by(&Launchers::total_steps)},
            {"warmup_start", by(&Launchers::warmup_start)},
            {"schedule_floor", by(&Launchers::schedule_floor)},
            {"precision", by(&Launchers::precision)},
            {"processes", by(&Launchers::processes)}};
  }

  Draft& draft_;
  const ConfigDocument& config_;
  LauncherRows rows_{draft_, conversions()};
};

}  // namespace

void add_launcher_settings(Draft& draft, const ConfigDocument& config) {
  Launchers launchers(draft, config);
  const auto pending = [&](std::string_view key) { return draft.find(kPending + std::string(key)); };
  if (const Setting* s = pending("accelerate_config")) launchers.accelerate(*s);
  if (const Setting* s = pending("deepspeed")) launchers.deepspeed(*s, config);
  launchers.fsdp(pending("fsdp"), pending("fsdp_config"));
}

}  // namespace qtrain
