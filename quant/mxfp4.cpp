#include "quant/mxfp4.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace qtrain {
namespace {

constexpr std::int64_t kBlock = 32, kBlockBytes = kBlock / 2;
constexpr std::array<float, 16> kValues{0, 0.5F, 1, 1.5F, 2, 3, 4, 6, -0.F, -0.5F, -1, -1.5F, -2, -3, -4, -6};
constexpr int kScaleBias = 127;

}  // namespace

void Mxfp4::expand(std::int64_t first, Tensor to) const {
  check(first % kBlock == 0 && to.numel() % kBlock == 0, "mxfp4: whole blocks only");
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(blocks.data) + first / 2;
  const auto* scale = reinterpret_cast<const std::uint8_t*>(scales.data) + first / kBlock;
  float* y = to.as<float>();
  for (std::int64_t block = 0; block < to.numel() / kBlock; ++block) {
    const float factor = std::ldexp(1.F, scale[block] - kScaleBias);
    for (std::int64_t i = 0; i < kBlockBytes; ++i) {
      const std::uint8_t both = bytes[block * kBlockBytes + i];
      *y++ = kValues[both & 15] * factor;
      *y++ = kValues[both >> 4] * factor;
    }
  }
}

Mxfp4 read_mxfp4(const SafetensorsReader& reader, const std::string& name, const Shape& shape) {
  const Mxfp4 found{.blocks = reader.at(name + "_blocks"), .scales = reader.at(name + "_scales")};
  const bool fits = shape.rank == 3 && shape[-1] % kBlock == 0;
  const Shape blocks{shape[0], shape[1], shape[-1] / kBlock, kBlockBytes}, scales{shape[0], shape[1], blocks[2]};
  const auto expect = [&](const char* what, const ConstTensor& t, const Shape& wanted) {
    if (fits && t.dtype == DType::u8 && t.shape == wanted) return;
    fail(ErrorKind::input, {.cause = fmt::format("is {} {}, but config.json requires {} {} for MXFP4", name_of(t.dtype),
                                                 to_string(t.shape), name_of(DType::u8), to_string(wanted)),
                            .place = fmt::format("{}: {}{}", reader.path().string(), name, what),
                            .remedy = "config.json and the weights must belong together"});
  };
  expect("_blocks", found.blocks, blocks);
  expect("_scales", found.scales, scales);
  return found;
}

bool is_mxfp4_config(const Json& config) {
  const auto found = config.find("quantization_config");
  if (found == config.end() || !found->is_object()) return false;
  const auto method = found->find("quant_method");
  return method != found->end() && *method == "mxfp4";
}

}  // namespace qtrain
