#include "core/tensor.h"

#include <algorithm>
#include <utility>

namespace qtrain {
namespace {

constexpr std::pair<std::string_view, DType> kNames[] = {
    {"float64", DType::f64},
    {"float32", DType::f32},
    {"float16", DType::f16},
    {"bfloat16", DType::bf16},
    {"int64", DType::i64},
    {"int32", DType::i32},
    {"int16", DType::i16},
    {"int8", DType::i8},
    {"uint8", DType::u8},
    {"bool", DType::boolean},
    {"float8_e4m3fn", DType::f8_e4m3},
    {"float8_e5m2", DType::f8_e5m2},
    {"fp64", DType::f64},
    {"fp32", DType::f32},
    {"fp16", DType::f16},
    {"bf16", DType::bf16},
    {"f32", DType::f32},
    {"f16", DType::f16},
    {"half", DType::f16},
    {"float", DType::f32},
    {"double", DType::f64},
};

}  // namespace

std::string_view name_of(DType d) {
  return std::find_if(std::begin(kNames), std::end(kNames), [&](const auto& n) { return n.second == d; })->first;
}

DType dtype_named(std::string_view name) {
  if (name.starts_with("torch.")) name.remove_prefix(6);
  for (const auto& [known, dtype] : kNames)
    if (known == name) return dtype;
  fail(ErrorKind::usage,
       {.cause = "unknown dtype \"" + std::string(name) + "\"", .remedy = "use float32, bfloat16 or float16"});
}

std::string to_string(const Shape& s) {
  std::string out = "[";
  for (int i = 0; i < s.rank; ++i) out += (i ? ", " : "") + std::to_string(s[i]);
  return out + "]";
}

}  // namespace qtrain
