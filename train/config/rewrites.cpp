#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/tensor.h"
#include "train/config/keys.h"

namespace qtrain {
namespace {

using Apply = std::function<Rewritten(const Json&)>;

Rewritten set(std::string key, Json value) {
  return {.settings = {{std::move(key), std::move(value)}}, .problem = {}};
}
Rewritten nothing() {
  return {};
}
Rewritten problem(std::string text) {
  return {.settings = {}, .problem = std::move(text)};
}

/// A switch that sets one key when true and another value (or nothing: null) when false.
Apply on_true(const std::string& key, const Json& when_true, const Json& when_false = nullptr) {
  return [=](const Json& v) {
    if (v.is_null()) return nothing();
    if (!v.is_boolean()) return problem(fmt::format("expected true or false, got {}", show(v)));
    const Json& value = v.get<bool>() ? when_true : when_false;
    return value.is_null() ? nothing() : set(key, value);
  };
}

struct Choice {
  std::string_view name;
  std::vector<std::pair<std::string, Json>> settings;
};

/// A word that stands for settings.
Apply one_of(std::vector<Choice> choices) {
  return [choices = std::move(choices)](const Json& v) -> Rewritten {
    if (v.is_null()) return nothing();
    std::vector<std::string_view> names;
    for (const Choice& c : choices) {
      if (v.is_string() && v.get<std::string>() == c.name) return {.settings = c.settings, .problem = {}};
      names.push_back(c.name);
    }
    return problem(fmt::format("{} is not available; available: {}", show(v), fmt::join(names, ", ")));
  };
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

Apply dtype(std::string key) {
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
      {"group_by_length", "true: train_sampling_strategy group_by_length",
       on_true("train_sampling_strategy", "group_by_length", "random")},
      {"use_cpu", "true: device cpu", on_true("device", "cpu")},
      {"no_cuda", "true: device cpu", on_true("device", "cpu")},
      {"overwrite_output_dir", "true: resume_from_checkpoint never", on_true("resume_from_checkpoint", "never")},
      {"adafactor", "true: optim adafactor", on_true("optim", "adafactor")},
      {"adapter_type", "lora or qlora: use_peft; none or full: all weights",
       one_of({{"lora", {{"use_peft", true}}},
               {"qlora", {{"use_peft", true}, {"load_in_4bit", true}}},
               {"none", {{"use_peft", false}}},
               {"full", {{"use_peft", false}}}})},
      {"quantization", "int4, nf4 or 4bit: load_in_4bit; int8 or 8bit: load_in_8bit; none",
       one_of({{"int4", kInt4},
               {"nf4", kInt4},
               {"4bit", kInt4},
               {"int8", {{"load_in_8bit", true}}},
               {"8bit", {{"load_in_8bit", true}}},
               {"none", {}}})},
      {"strategy", "sft; qlora: load_in_4bit", one_of({{"sft", {}}, {"qlora", {{"load_in_4bit", true}}}})},
      {"task", "text-generation", one_of({{"text-generation", {}}})},
      {"method", "sft, lora or qlora",
       one_of({{"sft", {}}, {"lora", {{"use_peft", true}}}, {"qlora", {{"use_peft", true}, {"load_in_4bit", true}}}})},
  };
}

}  // namespace

const std::vector<Rewrite>& rewrites() {
  static const std::vector<Rewrite> table = make_rewrites();
  return table;
}

const Rewrite* find_rewrite(std::string_view name) {
  const auto& table = rewrites();
  const auto at = std::find_if(table.begin(), table.end(), [&](const Rewrite& r) { return r.name == name; });
  return at == table.end() ? nullptr : &*at;
}

}  // namespace qtrain
