#include <fmt/format.h>

#include <algorithm>

#include "quant/bnb.h"

namespace qtrain {
namespace {

constexpr const char* kKey = "quantization_config";

[[noreturn]] void refuse_config(const std::string& file, const std::string& cause) {
  fail(ErrorKind::input, {.cause = cause,
                          .place = fmt::format("{}: {}", file, kKey),
                          .remedy = "use a 16-bit model, one that was quantized by bitsandbytes, or one in FP8"});
}

/// Typed access to the keys that matter here; unknown keys are ignored.
class ConfigFields {
 public:
  ConfigFields(const Json& json, const std::string& file) : json_(json), file_(file) {}

  bool truth(const char* key) const {
    if (!given(key)) return false;
    if (!json_[key].is_boolean()) refuse_config(file_, fmt::format("{} is neither true nor false", key));
    return json_[key].get<bool>();
  }
  std::string text(const char* key, const char* otherwise) const {
    if (!given(key)) return otherwise;
    if (!json_[key].is_string()) refuse_config(file_, fmt::format("{} is not a string", key));
    return json_[key].get<std::string>();
  }
  std::vector<std::string> texts(const char* key) const {
    std::vector<std::string> all;
    if (!given(key)) return all;
    if (!json_[key].is_array()) refuse_config(file_, fmt::format("{} is not a list", key));
    for (const Json& v : json_[key]) {
      if (!v.is_string() || v.get<std::string>().empty())
        refuse_config(file_, fmt::format("{} has an entry that is not a name", key));
      all.push_back(v.get<std::string>());
    }
    return all;
  }

 private:
  bool given(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }
  const Json& json_;
  const std::string& file_;
};

DType compute_dtype(const std::string& name, const std::string& file) {
  for (const DType d : {DType::f32, DType::bf16, DType::f16})
    if (name == name_of(d)) return d;
  refuse_config(file, fmt::format("bnb_4bit_compute_dtype {} is not float32, bfloat16 or float16", name));
}

/// transformers accepts regular expressions here, but only names occur in models.
void check_plain(const std::vector<std::string>& patterns, const std::string& file) {
  for (const std::string& p : patterns)
    if (!is_module_name(p))
      refuse_config(file, fmt::format("llm_int8_skip_modules has \"{}\", which is not a module name", p));
}

}  // namespace

bool is_module_name(std::string_view entry) {
  return !entry.empty() && entry.find_first_of("*+?[](){}|^$\\") == std::string_view::npos;
}

std::optional<BnbConfig> bnb_config(const Json& config, const std::string& file) {
  if (!config.contains(kKey) || config[kKey].is_null()) return std::nullopt;
  if (!config[kKey].is_object()) refuse_config(file, "is not a JSON object");
  const ConfigFields fields(config[kKey], file);
  const bool four = fields.truth("load_in_4bit"), eight = fields.truth("load_in_8bit");
  const std::string method = fields.text("quant_method", four || eight ? "bitsandbytes" : "");
  if (method != "bitsandbytes")
    refuse_config(file, method.empty() ? "has no quant_method"
                                       : fmt::format("quant_method {} is not supported, only bitsandbytes", method));
  if (four == eight) refuse_config(file, "exactly one of load_in_4bit and load_in_8bit must be true");
  BnbConfig c{.bits = four ? BnbConfig::Bits::four : BnbConfig::Bits::eight,
              .double_quant = fields.truth("bnb_4bit_use_double_quant"),
              .compute_dtype = compute_dtype(fields.text("bnb_4bit_compute_dtype", "float32"), file),
              .skip_modules = fields.texts("llm_int8_skip_modules")};
  const std::string type = fields.text("bnb_4bit_quant_type", "fp4");
  if (type != "nf4" && type != "fp4")
    refuse_config(file, fmt::format("bnb_4bit_quant_type {} is not nf4 or fp4", type));
  c.quant_type = type == "nf4" ? FourBit::nf4 : FourBit::fp4;
  check_plain(c.skip_modules, file);
  return c;
}

Json bnb_config_json(const BnbConfig& config) {
  const bool four = config.bits == BnbConfig::Bits::four;
  Json json;
  json["_load_in_4bit"] = four;
  json["_load_in_8bit"] = !four;
  json["bnb_4bit_compute_dtype"] = std::string(name_of(config.compute_dtype));
  json["bnb_4bit_quant_storage"] = "uint8";
  json["bnb_4bit_quant_type"] = config.quant_type == FourBit::nf4 ? "nf4" : "fp4";
  json["bnb_4bit_use_double_quant"] = config.double_quant;
  json["llm_int8_enable_fp32_cpu_offload"] = false;
  json["llm_int8_has_fp16_weight"] = false;
  json["llm_int8_skip_modules"] = config.skip_modules.empty() ? Json() : Json(config.skip_modules);
  json["llm_int8_threshold"] = 6.0;
  json["load_in_4bit"] = four;
  json["load_in_8bit"] = !four;
  json["quant_method"] = "bitsandbytes";
  return json;
}

bool BnbConfig::skips(const std::string& module) const {
  if (module == "lm_head") return true;
  return std::any_of(skip_modules.begin(), skip_modules.end(), [&](const std::string& name) {
    if (module.ends_with(name)) return true;
    if (!module.starts_with(name)) return false;
    return name.back() == '.' || module.size() == name.size() || module[name.size()] == '.';
  });
}

}  // namespace qtrain
