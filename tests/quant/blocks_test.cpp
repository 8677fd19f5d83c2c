#include <gmock/gmock.h>

#include <bit>

#include "core/formats/safetensors.h"
#include "kernels/quantize.h"
#include "tests/quant/support.h"

/// On the CPU, the ops are bitwise equal to bitsandbytes.
namespace qtrain {
namespace {

using testing::expect_same_bytes;
const SafetensorsReader& golden_blocks() {
  static const SafetensorsReader reader(QTRAIN_SOURCE_DIR "/tests/quant/goldens/bnb.safetensors");
  return reader;
}

/// Owns the memory of a tensor.
class Held {
 public:
  Held(DType dtype, std::int64_t n) : bytes_(static_cast<std::size_t>(n) * size_of(dtype)), dtype_(dtype), n_(n) {}
  Tensor tensor() { return {bytes_.data(), dtype_, {n_}, {}}; }
  operator Tensor() { return tensor(); }       // NOLINT: as an op's argument
  operator ConstTensor() { return tensor(); }  // NOLINT

 private:
  std::vector<std::byte> bytes_;
  DType dtype_;
  std::int64_t n_;
};

Held sequence(DType dtype, std::int64_t n) {
  Held held(dtype, n);
  const auto values = testing::uniform_values(n);
  const auto fill = [&]<class T>() { std::copy(values.begin(), values.end(), held.tensor().as<T>()); };
  if (dtype == DType::f32)
    fill.operator()<float>();
  else if (dtype == DType::f16)
    fill.operator()<F16>();
  else
    fill.operator()<Bf16>();
  return held;
}

struct BlocksCase {
  std::string name;
  ConstTensor x;
  FourBit type;
  int blocksize;
};

ConstTensor map_view(FourBit type) {
  return view_of(std::span<const float>(map_of(type)), {16});
}

void expect_quantized_as_golden(const BlocksCase& c, int threads) {
  Ctx ctx({}, MatmulPrecision::storage, threads);
  const std::int64_t n = c.x.numel();
  Held codes(DType::u8, (n + 1) / 2), absmax(DType::f32, blocks_of(n, c.blocksize));
  ops::quantize4(ctx, {.codes = codes, .absmax = absmax, .x = c.x, .type = c.type, .blocksize = c.blocksize});
  expect_same_bytes(absmax, golden_blocks().at(c.name + ".absmax"), c.name + " absmax");
  expect_same_bytes(codes, golden_blocks().at(c.name + ".codes"), c.name + " codes");
  for (const auto& [label, dtype] : {std::pair{"f32", DType::f32}, {"bf16", DType::bf16}, {"f16", DType::f16}}) {
    if (!golden_blocks().contains(c.name + ".y." + label)) continue;
    Held y(dtype, n);
    ops::dequantize4(
        ctx,
        {.y = y,
         .w = {.codes = codes, .absmax = absmax, .map = map_view(c.type), .shape = {n}, .blocksize = c.blocksize}});
    expect_same_bytes(y, golden_blocks().at(c.name + ".y." + label), c.name + " y " + label);
  }
}

class FourBits : public ::testing::TestWithParam<FourBit> {
 protected:
  const char* name() const { return GetParam() == FourBit::nf4 ? "nf4" : "fp4"; }
};

TEST_P(FourBits, MapIsTheReferences) {
  expect_same_bytes(map_view(GetParam()), golden_blocks().at(std::string("map.") + name()), "map");
}

TEST_P(FourBits, ZerosSubnormalsAndHugeValuesAreTheReferences) {
  const std::string what = std::string("special.") + name();
  expect_quantized_as_golden({.name = what, .x = golden_blocks().at(what + ".x"), .type = GetParam(), .blocksize = 64},
                             1);
}

/// Full blocks are multiplied by the inverse of the scale; a short one is divided by it.
TEST_P(FourBits, ValuesBetweenCodesAreTheReferences) {
  const std::string what = std::string("midpoints.") + name();
  expect_quantized_as_golden({.name = what, .x = golden_blocks().at(what + ".x"), .type = GetParam(), .blocksize = 32},
                             1);
}

TEST_P(FourBits, EveryDtypeIsTheReferences) {
  for (const char* dtype : {"f32", "bf16", "f16"}) {
    const std::string what = std::string("small.") + name() + "." + dtype;
    expect_quantized_as_golden(
        {.name = what, .x = golden_blocks().at(what + ".x"), .type = GetParam(), .blocksize = 32}, 2);
  }
}

TEST_P(FourBits, EveryBlockSizeIsTheReferences) {
  for (const int size : {32, 64, 128, 256, 512, 1024, 2048, 4096}) {
    Held x = sequence(DType::bf16, 2 * size + 77);
    expect_quantized_as_golden({.name = std::string("size.") + name() + "." + std::to_string(size),
                                .x = x,
                                .type = GetParam(),
                                .blocksize = size},
                               3);
  }
}

/// Streamed stores and any alignment give the same values.
TEST_P(FourBits, LargeAndUnalignedResultsAreTheSame) {
  constexpr std::int64_t kLarge = (std::int64_t{8} << 20) / 2 + 333;  // bf16: too large for the caches
  Ctx ctx({}, MatmulPrecision::storage, 2);
  Held codes(DType::u8, (kLarge + 1) / 2), absmax(DType::f32, blocks_of(kLarge, 64)), y(DType::bf16, kLarge + 1);
  auto* code = codes.tensor().as<std::uint8_t>();
  auto* scale = absmax.tensor().as<float>();
  const float* map = map_of(GetParam()).data();
  for (std::int64_t i = 0; i < (kLarge + 1) / 2; ++i) code[i] = static_cast<std::uint8_t>(i * 37 + i / 256);
  for (std::int64_t b = 0; b < blocks_of(kLarge, 64); ++b) scale[b] = 0.01F + 0.001F * static_cast<float>(b % 99);
  for (const std::int64_t shift : {0, 1}) {
    Tensor out = y.tensor().slice(shift, kLarge);
    ops::dequantize4(
        ctx, {.y = out, .w = {.codes = codes, .absmax = absmax, .map = map_view(GetParam()), .shape = {kLarge}}});
    std::int64_t wrong = 0;
    const Bf16* got = out.as<Bf16>();
    for (std::int64_t i = 0; i < kLarge; ++i) {
      const std::uint8_t byte = code[i / 2];
      const Bf16 want = map[i % 2 == 0 ? byte >> 4 : byte & 15] * scale[i / 64];
      wrong += got[i].bits != want.bits ? 1 : 0;
    }
    EXPECT_EQ(wrong, 0) << shift;
  }
}

TEST_P(FourBits, NaNAndInfinityShowInTheScale) {
  Ctx ctx;
  for (const float bad : {std::nanf(""), -INFINITY}) {
    Held x = sequence(DType::bf16, 64 * 3 + 5);
    x.tensor().as<Bf16>()[70] = bad;
    x.tensor().as<Bf16>()[64 * 3 + 4] = bad;
    Held codes(DType::u8, 99), absmax(DType::f32, 4);
    ops::quantize4(ctx, {.codes = codes, .absmax = absmax, .x = x, .type = GetParam()});
    const float* scales = absmax.tensor().as<float>();
    EXPECT_TRUE(std::isfinite(scales[0]) && std::isfinite(scales[2]));
    EXPECT_FALSE(std::isfinite(scales[1]) || std::isfinite(scales[3]));
  }
}

INSTANTIATE_TEST_SUITE_P(All, FourBits, ::testing::Values(FourBit::nf4, FourBit::fp4),
                         [](const auto& info) { return info.param == FourBit::nf4 ? "nf4" : "fp4"; });

TEST(DynamicMap, IsTheReferences) {
  expect_same_bytes(view_of(std::span<const float>(kSignedDynamicMap), {256}), golden_blocks().at("map.signed"),
                    "signed");
  expect_same_bytes(view_of(std::span<const float>(kUnsignedDynamicMap), {256}), golden_blocks().at("map.unsigned"),
                    "unsigned");
}

TEST(DynamicMap, NearestCodeIsTheNearest) {
  for (const auto& map : {kSignedDynamicMap, kUnsignedDynamicMap})
    for (int i = 0; i <= 4000; ++i) {
      const float x = -1.02F + 0.00051F * static_cast<float>(i);
      int best = 0;
      for (int k = 1; k < 256; ++k)
        if (std::abs(double{map[k]} - x) < std::abs(double{map[best]} - x)) best = k;
      const int code = nearest_code(map.data(), x);
      EXPECT_NEAR(map[code], map[best], 0) << x;
    }
}

TEST(DynamicMap, EveryCodeOfAMapIsFound) {
  for (const auto& map : {kSignedDynamicMap, kUnsignedDynamicMap})
    for (int k = 0; k < 256; ++k) EXPECT_EQ(nearest_code(map.data(), map[static_cast<std::size_t>(k)]), k);
}

TEST(EightBits, AreTheReferences) {
  Ctx ctx({}, MatmulPrecision::storage, 2);
  const ConstTensor x = golden_blocks().at("eight.x"), map = golden_blocks().at("map.signed");
  Held codes(DType::u8, x.numel()), absmax(DType::f32, blocks_of(x.numel(), 256)), y(DType::f32, x.numel());
  ops::quantize8(ctx, {.codes = codes, .absmax = absmax, .x = x, .map = map});
  expect_same_bytes(absmax, golden_blocks().at("eight.absmax"), "absmax");
  expect_same_bytes(codes, golden_blocks().at("eight.codes"), "codes");
  ops::dequantize8(ctx, {.y = y, .codes = codes, .absmax = absmax, .map = map});
  expect_same_bytes(y, golden_blocks().at("eight.y"), "y");
}

TEST(EightBits, RowsAreTheReferences) {
  Ctx ctx;
  const ConstTensor codes = golden_blocks().at("rows.codes"), scale = golden_blocks().at("rows.scale");
  for (const auto& [label, dtype] : {std::pair{"f32", DType::f32}, {"bf16", DType::bf16}}) {
    Held y(dtype, codes.numel());
    ops::dequantize_rows8(ctx, {.y = y, .codes = codes, .scale = scale});
    const ConstTensor want = golden_blocks().at(std::string("rows.") + label);
    expect_same_bytes(y, want.reshaped({want.numel()}), label);
  }
}

}  // namespace
}  // namespace qtrain
