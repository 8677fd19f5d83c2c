#include "config/translate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <sstream>

#include "config/dataset_lists.h"
#include "config/keys.h"
#include "config/yaml.h"

namespace qtrain {
namespace {

constexpr std::int64_t kMaxSeed = std::int64_t{1} << 53;  // JSON numbers are exact up to it

Translation set(const std::string& key, Json value) {
  return {.settings = {{key, std::move(value)}}};
}
Translation problem(std::string text) {
  return {.settings = {}, .problem = std::move(text)};
}

Translation number(const KeyRow& row, const Json& v) {
  return set(row.target, v.is_string() ? yaml_plain_value(v.get<std::string>()) : v);
}

/// Splits "a, b" into a list; a list stays as it is.
Translation comma_list(const KeyRow& row, const Json& v) {
  if (v.is_null()) return {};
  if (!v.is_string()) return set(row.target, v);
  Json words = Json::array();
  std::istringstream in(v.get<std::string>());
  for (std::string part; std::getline(in, part, ',');) {
    const auto first = part.find_first_not_of(' '), last = part.find_last_not_of(' ');
    if (first != std::string::npos) words.push_back(part.substr(first, last - first + 1));
  }
  return set(row.target, words);
}

/// Joins arguments given as an object into one text.
Translation arguments(const KeyRow& row, const Json& v) {
  if (!v.is_object()) return set(row.target, v);
  std::string text;
  for (const auto& [key, value] : v.items())
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", key,
                        value.is_string() ? value.get<std::string>() : show(value));
  return set(row.target, text);
}

Translation special_tokens(const KeyRow&, const Json& v) {
  Translation out;
  if (v.is_null()) return out;
  if (!v.is_object()) return problem(fmt::format("expected an object, got {}", show(v)));
  for (const auto& [name, token] : v.items()) {
    if (token.is_null()) continue;
    if (name == "eos_token" || name == "pad_token")
      out.settings.emplace_back(name, token);
    else
      out.remarks.push_back(fmt::format("{} {} has no effect: the model's folder decides", name, show(token)));
  }
  return out;
}

/// The sizes of accelerate's ParallelismConfig, with or without the prefix that its files use. The number of
/// data-parallel ranks follows from other keys.
Translation parallelism(const KeyRow&, const Json& v) {
  constexpr std::string_view kPrefix = "parallelism_config_";
  constexpr std::array<std::string_view, 9> kNames{"cp_size",           "tp_size",       "sp_size",
                                                   "dp_replicate_size", "dp_shard_size", "cp_backend",
                                                   "sp_backend",        "cp_handler",    "cp_comm_strategy"};
  Translation out;
  if (v.is_null()) return out;
  if (!v.is_object()) return problem(fmt::format("expected an object, got {}", show(v)));
  for (const auto& [written, size] : v.items()) {
    const std::string name = written.starts_with(kPrefix) ? written.substr(kPrefix.size()) : written;
    const auto report = [&](std::string_view why) {
      out.problem += fmt::format("{}{} is {}, {}", out.problem.empty() ? "" : "; ", written, show(size), why);
    };
    const bool several = size != 1 && !size.is_null();
    if (name == "cp_size")
      out.settings.emplace_back("context_parallel_size", size);
    else if (name == "dp_shard_size" && size.is_number_integer() && size > 1)
      out.settings.emplace_back("~dp_shard_size", size);
    else if (name == "tp_size" && several)
      report("but ranks can only share rows or tokens (cp_size)");
    else if (name == "sp_size" && several)
      report("but ranks share tokens only by exchanging keys: set cp_size to this value, and sp_size to 1");
    else if (!std::ranges::count(kNames, name)) {
      const std::string_view near = nearest(name, kNames);
      report(near.empty() ? "but there is no such size"
                          : fmt::format("but there is no such size: did you mean {}?", near));
    }
  }
  return out;
}

/// axolotl's `peft`: {loftq_config: {loftq_bits: 4}}.
Translation axolotl_peft(const KeyRow&, const Json& v) {
  if (v.is_null() || (v.is_object() && v.empty())) return {};
  if (!v.is_object()) return problem(fmt::format("expected an object, got {}", show(v)));
  for (const auto& [key, value] : v.items())
    if (key != "loftq_config") return problem(fmt::format("unknown member \"{}\"", key));
  const Json& loftq = v["loftq_config"];
  if (loftq.is_null()) return {};
  if (!loftq.is_object()) return problem(fmt::format("loftq_config: expected an object, got {}", show(loftq)));
  for (const auto& [key, value] : loftq.items())
    if (!(key == "loftq_bits" && value == 4) && !(key == "loftq_iter" && value == 1))
      return problem(fmt::format("loftq_config: {} is {}, but LoftQ quantizes to 4 bits once", key, show(value)));
  return set("init_lora_weights", "loftq");
}

/// Why the entries of a mixture cannot have their weights beside an id, which are shares of their rows; empty: they
/// can.
std::string problem_of_weights(const Json& entries) {
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Json weight =
        entries[i].is_object() && entries[i].contains("id") ? entries[i].value("weight", Json()) : Json();
    if (weight.is_null() || (weight.is_number() && weight >= 0 && weight <= 1)) continue;
    return fmt::format(
        "datasets[{}].weight is {}, but beside id it is a share of the rows of {}: give a number from 0 to 1", i,
        show(weight), show(entries[i]["id"]));
  }
  return "";
}

/// Leaves out the entries of which no rows are taken.
Json without_empty(const Json& entries, Translation& out) {
  Json kept = Json::array();
  for (const Json& entry : entries) {
    const bool is_empty = entry.is_object() && entry.contains("id") && entry.value("weight", Json()) == 0;
    if (is_empty)
      out.remarks.push_back(fmt::format("{} is left out: its weight is 0", show(entry["id"])));
    else
      kept.push_back(entry);
  }
  if (kept.empty() && !entries.empty()) out.problem = "all data sets have weight 0, so there are no rows";
  return kept;
}

/// A list, or an object that contains one as in alignment-handbook and open-r1.
Translation mixture(const KeyRow&, const Json& v) {
  if (!v.is_object()) return set("dataset_mixture", v);
  const Json given = v.value("datasets", Json::array()), seed = v.value("seed", Json(0));
  if (!given.is_array()) return read_datasets("dataset_name", given);
  if (std::string text = problem_of_weights(given); !text.empty()) return problem(std::move(text));
  Translation empty;
  const Json entries = without_empty(given, empty);
  if (!empty.problem.empty()) return empty;
  Translation out = read_datasets("dataset_name", entries);
  out.remarks.insert(out.remarks.end(), empty.remarks.begin(), empty.remarks.end());
  bool has_shares = false;
  for (auto& [key, sources] : out.settings)
    if (key == "dataset_mixture")
      for (Json& source : sources)
        if (source.contains("share")) source["share_seed"] = seed, has_shares = true;
  if (has_shares && !seed.is_null() && !(seed.is_number_integer() && seed >= 0 && seed <= kMaxSeed))
    return problem(fmt::format("seed is {}, expected a whole number from 0 to {}", show(seed), kMaxSeed));
  for (const auto& [key, value] : v.items()) {
    if (key == "test_split_size" && !value.is_null()) {
      out.settings.emplace_back("eval_split", value);
      if (has_shares)
        out.remarks.emplace_back("test_split_size: eval_split holds out other rows than the seed would draw");
    } else if (key == "seed" && has_shares)
      out.remarks.emplace_back("seed: it chooses the rows of each weight, but their order follows from data_seed");
    else if (key == "seed" || key == "streaming")
      out.remarks.push_back(key + " has no effect: rows are shuffled by data_seed, and files are mapped");
    else if (key != "datasets" && key != "test_split_size")
      out.problem += fmt::format("{}unknown member \"{}\"", out.problem.empty() ? "" : "; ", key);
  }
  return out;
}

/// How TRL prepares rows; of its former options it still reads one.
Translation preparation(const KeyRow&, const Json& v) {
  if (v.is_null()) return {};
  if (!v.is_object()) return problem(fmt::format("expected an object, got {}", show(v)));
  Translation out;
  for (const auto& [member, value] : v.items()) {
    if (member == "skip_prepare_dataset" && !value.is_null() && !value.is_boolean())
      return problem(fmt::format("skip_prepare_dataset is {}, expected true or false", show(value)));
    if (member == "skip_prepare_dataset" && value == true)
      return problem("skip_prepare_dataset cannot be honored: rows of input_ids are recognized as prepared");
    if (member == "add_special_tokens" || member == "append_concat_token")
      out.remarks.push_back(member + " has no effect: how texts begin and end follows from the tokenizer, as in TRL");
    else if (member != "skip_prepare_dataset")
      return problem(fmt::format("unknown member \"{}\"", member));
  }
  return out;
}

/// The name of a format; whether the model's folder has its own chat template is known only later.
Translation chat_format(const KeyRow&, const Json& v) {
  constexpr std::string_view kFallback = "tokenizer_default_fallback_";
  if (v.is_null()) return {};
  if (!v.is_string()) return problem(fmt::format("expected a name, got {}", show(v)));
  const std::string name = v.get<std::string>();
  return set("~chat_format", name.starts_with(kFallback) ? name.substr(kFallback.size()) : name);
}

Translation convert(const KeyRow& row, const Json& value) {
  using Conversion = Translation (*)(const KeyRow& row, const Json& value);
  static const std::map<std::string_view, Conversion> kConversions{
      {"number", number},
      {"comma_list", comma_list},
      {"arguments", arguments},
      {"axolotl_peft", axolotl_peft},
      {"special_tokens", special_tokens},
      {"mixture", mixture},
      {"preparation", preparation},
      {"chat_format", chat_format},
      {"parallelism", parallelism},
      {"datasets", [](const KeyRow&, const Json& v) { return read_datasets("dataset_name", v); }},
      {"pretraining_datasets", [](const KeyRow&, const Json& v) { return pretraining_datasets(v); }},
      {"evaluation_datasets", [](const KeyRow&, const Json& v) { return read_datasets("eval_dataset_name", v); }},
  };
  return kConversions.at(row.convert)(row, value);
}

Translation as_mapped(const KeyRow& row, const Json& value, const Json& meaning) {
  Translation out;
  if (meaning.is_object())
    for (const auto& [key, setting] : meaning.items()) out.settings.emplace_back(key, setting);
  else if (!meaning.is_null())
    out.settings.emplace_back(row.target, meaning);
  if (!meaning.is_null() && !row.note.empty()) out.remarks.push_back(fmt::format("{}: {}", show(value), row.note));
  for (const auto& [noted, text] : row.notes)
    if (value == noted) out.remarks.push_back(text);
  return out;
}

/// The problem with a value that is not in the map, if the map is exhaustive.
std::string not_in_map(const KeyRow& row, const Json& value) {
  std::vector<std::string> words;
  for (const auto& [word, meaning] : row.map) {
    if (word.is_boolean()) return fmt::format("expected true or false, got {}", show(value));
    if (word != "") words.push_back(word.is_string() ? word.get<std::string>() : show(word));
  }
  return fmt::format("{} is not available; available: {}", show(value), fmt::join(words, ", "));
}

}  // namespace

Translation translate(const KeyRow& row, const Json& value) {
  for (const auto& [refused, why] : row.refused)
    if (value == refused) return problem(why);
  if (const Json* meaning = row.meaning(value)) return as_mapped(row, value, *meaning);
  if (!row.convert.empty()) return convert(row, value);
  if (!row.remedy.empty() && !value.is_null()) return problem(row.otherwise);
  const bool maps_all = row.target.empty() || !row.otherwise.empty();
  if (value.is_null() && maps_all) return {};
  if (!row.otherwise.empty()) return {.settings = {}, .remarks = {fmt::format("{}: {}", show(value), row.otherwise)}};
  if (row.target.empty()) return problem(not_in_map(row, value));
  return set(row.target, value);
}

}  // namespace qtrain
