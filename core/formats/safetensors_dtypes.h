#pragma once
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>

#include "core/tensor.h"

namespace qtrain {

/// A dtype of the format; `ours` is set if kernels or readers support it.
struct FileDType {
  std::string_view name;
  std::uint64_t bits;
  std::optional<DType> ours = {};
};

/// The dtypes in the order of the library's enumeration, which writes later ones first.
inline constexpr FileDType kDTypes[] = {{"BOOL", 8, DType::boolean},
                                        {"F4", 4},
                                        {"F6_E2M3", 6},
                                        {"F6_E3M2", 6},
                                        {"U8", 8, DType::u8},
                                        {"I8", 8, DType::i8},
                                        {"F8_E5M2", 8},
                                        {"F8_E4M3", 8, DType::f8_e4m3},
                                        {"F8_E8M0", 8},
                                        {"I16", 16, DType::i16},
                                        {"U16", 16},
                                        {"F16", 16, DType::f16},
                                        {"BF16", 16, DType::bf16},
                                        {"I32", 32, DType::i32},
                                        {"U32", 32},
                                        {"F32", 32, DType::f32},
                                        {"C64", 64},
                                        {"F64", 64, DType::f64},
                                        {"I64", 64, DType::i64},
                                        {"U64", 64}};

/// Null for a name that the format does not define.
inline const FileDType* file_dtype(std::string_view name) {
  const auto* found = std::find_if(std::begin(kDTypes), std::end(kDTypes), [&](auto& d) { return d.name == name; });
  return found == std::end(kDTypes) ? nullptr : found;
}

inline const FileDType& file_dtype(DType dtype) {
  for (const auto& d : kDTypes)
    if (d.ours == dtype) return d;
  fail(ErrorKind::internal, {.cause = "dtype without a safetensors name"});
}

}  // namespace qtrain
