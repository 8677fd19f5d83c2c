#include "core/finite.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/half.h"

namespace qtrain {
namespace {

// Checks a whole block at a time, without a branch for each element.
template <class Bits>
std::optional<std::int64_t> first_with_exponent(const Bits* bits, std::int64_t count, Bits exponent) {
  constexpr std::int64_t kBlock = 4096;
  const auto is_bad = [exponent](Bits b) { return (b & exponent) == exponent; };
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const Bits *from = bits + begin, *to = bits + std::min(begin + kBlock, count);
    unsigned bad = 0;
    for (const Bits* b = from; b != to; ++b) bad |= static_cast<unsigned>(is_bad(*b));
    if (bad != 0) return std::find_if(from, to, is_bad) - bits;
  }
  return {};
}

template <class Bits>
std::optional<std::int64_t> first_of(ConstTensor tensor, Bits exponent) {
  return first_with_exponent(reinterpret_cast<const Bits*>(tensor.data), tensor.numel(), exponent);
}

}  // namespace

std::optional<std::int64_t> first_nonfinite(ConstTensor tensor) {
  switch (tensor.dtype) {
    case DType::f64: return first_of<std::uint64_t>(tensor, 0x7ff0000000000000U);
    case DType::f32: return first_of<std::uint32_t>(tensor, 0x7f800000U);
    case DType::f16: return first_of<std::uint16_t>(tensor, 0x7c00U);
    case DType::bf16: return first_of<std::uint16_t>(tensor, 0x7f80U);
    default: return {};
  }
}

std::string describe_element(ConstTensor tensor, std::int64_t element) {
  const auto describe = [&]<class T>(T) {
    return fmt::format("element {} is {}", element,
                       static_cast<double>(static_cast<float>(reinterpret_cast<const T*>(tensor.data)[element])));
  };
  switch (tensor.dtype) {
    case DType::f64: return describe(double{});
    case DType::f32: return describe(float{});
    case DType::f16: return describe(F16{});
    default: return describe(Bf16{});
  }
}

}  // namespace qtrain
