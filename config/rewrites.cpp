#include <fmt/format.h>

#include <algorithm>

#include "config/keys.h"
#include "config/rewrite_rules.h"
#include "core/tensor.h"

namespace qtrain {
namespace {

Rewritten set(std::string key, Json value) {
  return {.settings = {{std::move(key), std::move(value)}}};
}
Rewritten nothing() {
  return {};
}

/// null and -1 stand for "as long as the model takes": the dialect's default.
Rewritten max_seq_length(const Json& v) {
  if (v.is_null() || v == -1) return nothing();
  return set("max_length", v);
}

Rewritten packing(const Json& v) {
  if (!v.is_string()) return set("packing", v);
  const auto name = v.get<std::string>();
  if (name == "none") return set("packing", false);
  return {.settings = {{"packing", true}, {"packing_strategy", name}}, .problem = {}};
}

Rewritten packing_strategy(const Json& v) {
  return set("packing_strategy", v == "bfd-requeue" ? Json("bfd_split") : v);
}

RewriteRule dtype(std::string key) {
  return [key = std::move(key)](const Json& v) {
    if (v.is_null()) return key == "dtype" ? set(key, "auto") : set(key, nullptr);
    if (!v.is_string() || v == "auto") return set(key, v);
    try {
      return set(key, std::string(name_of(dtype_named(v.get<std::string>()))));
    } catch (const Error&) {
      return set(key, v);  // the range check of the key names the choices
    }
  };
}

Rewritten resume(const Json& v) {
  if (v.is_null()) return nothing();
  if (v.is_boolean()) return set("resume_from_checkpoint", v.get<bool>() ? "auto" : "never");
  return set("resume_from_checkpoint", v);
}

Rewritten report_to(const Json& v) {
  if (v.is_null() || v == "none" || v == Json::array({"none"})) return set("report_to", Json::array());
  if (v == "all" || v == Json::array({"all"})) return set("report_to", Json::array());
  return set("report_to", v);
}

/// A folder, or whether there is one at all.
Rewritten pretokenized_cache(const Json& v) {
  if (v.is_boolean()) return v.get<bool>() ? nothing() : set("token_cache_dir", "");
  return set("token_cache_dir", v);
}

const std::vector<std::pair<std::string, Json>> kInt4 = {
    {"load_in_4bit", true}, {"bnb_4bit_use_double_quant", true}, {"bnb_4bit_compute_dtype", "bfloat16"}};

/// transformers 5 calls gradient_checkpointing so; manifests have it beside that key.
Rewritten activation_checkpointing(const Json& v) {
  if (v == "attention_only") return set("~attention_checkpointing", "selective");
  return set("gradient_checkpointing", v);
}

/// A list, or an object around it as alignment-handbook and open-r1 write it.
Rewritten dataset_mixture(const Json& v) {
  if (!v.is_object()) return set("dataset_mixture", v);
  Rewritten out = training_datasets(v.value("datasets", Json::array()));
  for (const auto& [key, value] : v.items()) {
    if (key == "test_split_size" && !value.is_null())
      out.settings.emplace_back("eval_split", value);
    else if (key == "seed" || key == "streaming")
      out.remarks.push_back(key + " has no effect: rows are shuffled by data_seed, and files are mapped");
    else if (key != "datasets" && key != "test_split_size")
      out.problem += fmt::format("{}unknown member \"{}\"", out.problem.empty() ? "" : "; ", key);
  }
  return out;
}

/// YAML reads `no` as a boolean.
RewriteRule strategy(std::string key) {
  return [key = std::move(key)](const Json& v) { return set(key, v == false ? Json("no") : v); };
}

std::vector<Rewrite> make_rewrites() {
  return {
      {"max_seq_length", "max_length, where null and -1 mean the default", max_seq_length},
      {"max_seq_len", "max_length, where null and -1 mean the default", max_seq_length},
      {"packing", "", packing},
      {"packing_strategy", "", packing_strategy},
      {"dtype", "", dtype("dtype")},
      {"bnb_4bit_compute_dtype", "", dtype("bnb_4bit_compute_dtype")},
      {"resume_from_checkpoint", "", resume},
      {"report_to", "", report_to},
      {"pretokenized_cache", "token_cache_dir; true: the default folder; false: none", pretokenized_cache},
      {"eval_strategy", "", strategy("eval_strategy")},
      {"save_strategy", "", strategy("save_strategy")},
      {"logging_strategy", "", strategy("logging_strategy")},
      {"group_by_length", "true: train_sampling_strategy group_by_length",
       when_true("train_sampling_strategy", "group_by_length", "random")},
      {"use_cpu", "true: device cpu", when_true("device", "cpu")},
      {"no_cuda", "true: device cpu", when_true("device", "cpu")},
      {"overwrite_output_dir", "true: resume_from_checkpoint never", when_true("resume_from_checkpoint", "never")},
      {"adafactor", "true: optim adafactor", when_true("optim", "adafactor")},
      {"datasets", "a list of {path, data_files, ...}: dataset_name, or dataset_mixture", training_datasets},
      {"test_split_size", "eval_split", as_key("eval_split")},
      {"dataset_mixture", "", dataset_mixture},
      {"activation_checkpointing",
       "gradient_checkpointing; \"attention_only\" is \"selective\" and goes before gradient_checkpointing false",
       activation_checkpointing},
      {"deepspeed", "a DeepSpeed JSON or object: its batch, clipping, precision, optimizer, schedule and offload",
       pending("deepspeed")},
      {"fsdp", "true or words: offload is optimizer_offload", pending("fsdp")},
      {"fsdp_config", "a file or object: cpu_offload is optimizer_offload, activation_checkpointing as here",
       pending("fsdp_config")},
      {"accelerate_config", "an accelerate file: its mixed_precision, use_cpu and DeepSpeed or FSDP part",
       pending("accelerate_config")},
      {"adapter_type", "lora, dora or qlora: use_peft; none or full: all weights",
       word_among({{"lora", {{"use_peft", true}}},
                   {"dora", {{"use_peft", true}, {"use_dora", true}}},
                   {"qlora", {{"use_peft", true}, {"load_in_4bit", true}}},
                   {"none", {{"use_peft", false}}},
                   {"full", {{"use_peft", false}}}})},
      {"quantization", "int4, nf4 or 4bit: load_in_4bit; int8 or 8bit: load_in_8bit; none",
       word_among({{"int4", kInt4},
                   {"nf4", kInt4},
                   {"4bit", kInt4},
                   {"int8", {{"load_in_8bit", true}}},
                   {"8bit", {{"load_in_8bit", true}}},
                   {"none", {}}})},
      {"strategy", "sft; qlora: load_in_4bit", word_among({{"sft", {}}, {"qlora", {{"load_in_4bit", true}}}})},
      {"task", "text-generation", word_among({{"text-generation", {}}})},
      {"method", "sft, lora or qlora",
       word_among(
           {{"sft", {}}, {"lora", {{"use_peft", true}}}, {"qlora", {{"use_peft", true}, {"load_in_4bit", true}}}})},
  };
}

}  // namespace

const std::vector<Rewrite>& rewrites() {
  static const std::vector<Rewrite> table = make_rewrites();
  return table;
}

const Rewrite* find_rewrite_in(std::span<const Rewrite> list, std::string_view name) {
  const auto at = std::find_if(list.begin(), list.end(), [&](const Rewrite& r) { return r.name == name; });
  return at == list.end() ? nullptr : &*at;
}

const Rewrite* find_rewrite(std::string_view name) {
  return find_rewrite_in(rewrites(), name);
}

}  // namespace qtrain
