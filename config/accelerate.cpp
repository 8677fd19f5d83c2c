#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "config/keys.h"
#include "config/launchers.h"

namespace qtrain {
namespace {

constexpr std::string_view kDeepspeedPart = "deepspeed_config.", kFsdpPart = "fsdp_config.", kFsdpPrefix = "fsdp_";

bool is_true_word(const Json& value) {
  return value == true || value == "true" || value == "True";
}

}  // namespace

void LauncherReader::fsdp(const Setting* chosen, const Setting* options, const ConfigDocument& config) {
  const bool on = chosen && !says_nothing(chosen->value);
  if (options && !says_nothing(options->value)) {
    if (on) return fsdp_words(*chosen), open(*options, config, "fsdp_config", [&](auto& part) { fsdp_options(part); });
    draft_.judge.note(options->place, fmt::format("\"{}\" has no effect without fsdp", options->written));
  } else if (on) {
    fsdp_words(*chosen);
  }
}

void LauncherReader::fsdp_words(const Setting& chosen) {
  if (is_true_word(chosen.value)) return;
  std::vector<std::string> words;
  std::istringstream text(chosen.value.is_string() ? chosen.value.get<std::string>() : "");
  for (std::string word; text >> word;) words.push_back(word);
  const Json list = chosen.value.is_array() ? chosen.value : Json::array();
  for (const Json& word : list) words.push_back(word.is_string() ? word.get<std::string>() : show(word));
  if (words.empty()) words.push_back(show(chosen.value));
  const std::vector<std::string_view> known = dialect_table("fsdp").list("words");
  for (const std::string& word : words) {
    const Leaf leaf{word, chosen.written, chosen.place, word};
    if (word == "offload") set(leaf, "optimizer_offload", true);
    if (std::ranges::find(known, word) == known.end())
      refuse(leaf, fmt::format("the words of fsdp are {}", fmt::join(known, ", ")), "use true and fsdp_config");
  }
  draft_.judge.note(chosen.place, fmt::format("\"{}\" shards over several devices; on one there is nothing to shard",
                                              chosen.written));
}

void LauncherReader::fsdp_options(const LauncherPart& part) {
  for (const Leaf& leaf : leaves_of(part)) fsdp_leaf(leaf);
  tell_ignored(part, "FSDP");
}

void LauncherReader::fsdp_leaf(Leaf leaf) {
  if (leaf.key.starts_with(kFsdpPrefix)) leaf.key.erase(0, kFsdpPrefix.size());
  apply(dialect_table("fsdp"), leaf);
}

void LauncherReader::turn_on(const KeyRow& row, const Leaf& leaf) {
  if (is_true_word(leaf.value)) set(leaf, row.target, true);
}

void LauncherReader::recomputation(const KeyRow&, const Leaf& leaf) {
  const Setting* given = draft_.find("gradient_checkpointing");
  if (is_true_word(leaf.value) && !(given && given->value.is_string())) set(leaf, "gradient_checkpointing", true);
}

void LauncherReader::xla(const KeyRow&, const Leaf& leaf) {
  is_true_word(leaf.value) ? refuse(leaf, "there is no XLA") : ignore(leaf);
}

void LauncherReader::accelerate(const LauncherPart& part) {
  for (const Leaf& leaf : leaves_of(part)) accelerate_leaf(leaf, part);
  tell_ignored(part, "accelerate");
}

void LauncherReader::accelerate_leaf(const Leaf& leaf, const LauncherPart& part) {
  if (leaf.is("deepspeed_config.deepspeed_config_file"))
    return open({leaf.written, leaf.place, leaf.value}, part.document, "a DeepSpeed config",
                [&](const LauncherPart& file) { deepspeed(file); });
  if (leaf.key.starts_with(kDeepspeedPart)) {
    const Json& names = dialect_table("accelerate").object("deepspeed");
    if (const auto name = names.find(leaf.key.substr(kDeepspeedPart.size())); name != names.end())
      return deepspeed_leaf({name->get<std::string>(), leaf.written, leaf.place, leaf.value});
  }
  if (leaf.key.starts_with(kFsdpPart))
    return fsdp_leaf({leaf.key.substr(kFsdpPart.size()), leaf.written, leaf.place, leaf.value});
  apply(dialect_table("accelerate"), leaf);
}

void LauncherReader::processor(const KeyRow&, const Leaf& leaf) {
  if (is_true_word(leaf.value)) set(leaf, "device", "cpu");
}

// As in transformers, the arguments of the training win.
void LauncherReader::precision(const KeyRow&, const Leaf& leaf) {
  if (leaf.value == "no" || says_nothing(leaf.value)) return;
  if (leaf.value != "bf16" && leaf.value != "fp16")
    return refuse(leaf, "products are in float32, bf16 or fp16", "use no, bf16 or fp16");
  for (const char* key : {"bf16", "fp16"}) {
    const Setting* given = draft_.find(key);
    if (!given) continue;
    if ((given->value == true) != (leaf.value == key))
      draft_.judge.note(leaf.place, fmt::format("\"{}\" {} has no effect: \"{}\" is {} ({})", leaf.written,
                                                show(leaf.value), given->written, show(given->value), given->place));
    return;
  }
  draft_.offer(leaf.value.get<std::string>(), {leaf.written, leaf.place, true});
}

void LauncherReader::processes(const KeyRow&, const Leaf& leaf) {
  const Setting* ranks = draft_.find("nproc");
  if (!leaf.value.is_number_integer() || leaf.value <= 1 || (ranks && ranks->value == leaf.value)) return;
  draft_.judge.note(leaf.place, fmt::format("\"{}\" is {} there and nproc {} here: an update sees fewer rows; "
                                            "gradient_accumulation_steps makes up for it",
                                            leaf.written, show(leaf.value), ranks ? show(ranks->value) : "1"));
}

}  // namespace qtrain
