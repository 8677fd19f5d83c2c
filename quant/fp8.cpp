#include "quant/fp8.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>

#include "core/fp8.h"
#include "core/half.h"

namespace qtrain {
namespace {

constexpr const char* kConfigKey = "quantization_config";
constexpr const char* kScaleEndings[] = {"_scale_inv", "_scale"};

[[noreturn]] void refuse_fp8_config(const std::string& file, const std::string& cause) {
  fail(ErrorKind::input, {.cause = cause,
                          .place = fmt::format("{}: {}", file, kConfigKey),
                          .remedy = "use the 16-bit model that it was made from"});
}

/// The value of each code.
std::array<float, 256> e4m3_values() {
  std::array<float, 256> values{};
  for (unsigned code = 0; code < 256; ++code) values[code] = decode_fp8<E4m3>(static_cast<std::uint8_t>(code));
  return values;
}

float scale_at(const ConstTensor& scales, std::int64_t i) {
  switch (scales.dtype) {
    case DType::f32: return scales.as<float>()[i];
    case DType::bf16: return static_cast<float>(scales.as<Bf16>()[i]);
    case DType::f16: return static_cast<float>(scales.as<F16>()[i]);
    default: return std::ldexp(1.F, scales.as<std::uint8_t>()[i] - 127);
  }
}

std::int64_t rounded_up(std::int64_t n, std::int64_t by) {
  return (n + by - 1) / by;
}

template <class T>
void expand_rows(const Fp8Matrix& m, std::int64_t first, Tensor to) {
  static const std::array<float, 256> values = e4m3_values();
  const std::int64_t width = m.codes.shape[1], blocks = rounded_up(width, m.block[1]);
  const auto* code = reinterpret_cast<const std::uint8_t*>(m.codes.data) + first * width;
  T* y = to.as<T>();
  for (std::int64_t row = first; row < first + to.numel() / width; ++row)
    for (std::int64_t b = 0; b < blocks; ++b) {
      const float scale = scale_at(m.scales, row / m.block[0] * blocks + b);
      const std::int64_t end = std::min((b + 1) * m.block[1], width);
      for (std::int64_t column = b * m.block[1]; column < end; ++column) *y++ = T(values[*code++] * scale);
    }
}

/// Whether scales have the shape of a grid of blocks. Scales of whole rows may be a vector, and a single one may have
/// any rank.
bool has_shape(const ConstTensor& scales, const Shape& grid) {
  if (scales.shape == grid || (grid.numel() == 1 && scales.numel() == 1)) return true;
  return grid[1] == 1 && scales.shape == Shape{grid[0]};
}

/// A block size [rows, columns], from a list of two positive integers; rank 0 if it is absent.
Shape block_of(const Json& from, const char* key, const std::string& file) {
  const auto found = from.find(key);
  if (found == from.end() || found->is_null()) return {};
  const auto positive = [](const Json& n) {
    return n.is_number_integer() && n.get<double>() >= 1 && n.get<double>() <= std::numeric_limits<int>::max();
  };
  if (!found->is_array() || found->size() != 2 || !std::all_of(found->begin(), found->end(), positive))
    refuse_fp8_config(file, fmt::format("{} is not a list of two positive integers", key));
  return {(*found)[0].get<std::int64_t>(), (*found)[1].get<std::int64_t>()};
}

/// compressed-tensors: all groups of layers store weights of the same kind.
Fp8Config config_of_groups(const Json& config, const std::string& file) {
  for (const char* key : {"sparsity_config", "transform_config"})
    if (const auto found = config.find(key); found != config.end() && !found->empty())
      refuse_fp8_config(file, fmt::format("{} is not supported", key));
  const auto groups = config.find("config_groups");
  if (groups == config.end() || !groups->is_object() || groups->empty())
    refuse_fp8_config(file, "config_groups is missing");
  std::optional<Shape> block;
  for (const Json& group : *groups) {
    const auto weights = group.is_object() ? group.find("weights") : group.end();
    if (!group.is_object() || weights == group.end() || !weights->is_object())
      refuse_fp8_config(file, "a group of config_groups has no weights");
    if (weights->value("type", Json()) != "float" || weights->value("num_bits", Json()) != 8 ||
        weights->value("symmetric", Json(true)) != true)
      refuse_fp8_config(file,
                        "a group of config_groups has weights that are not symmetric 8-bit floating-point numbers");
    const Shape found = block_of(*weights, "block_structure", file);
    if (block && !(*block == found)) refuse_fp8_config(file, "the groups of config_groups have different blocks");
    block = found;
  }
  return {.block = *block};
}

}  // namespace

std::optional<Fp8Config> fp8_config(const Json& config, const std::string& file) {
  const auto found = config.find(kConfigKey);
  if (found == config.end() || !found->is_object()) return std::nullopt;
  const auto is = [&](const char* key, const char* value) { return found->value(key, Json()) == value; };
  if (is("quant_method", "fp8")) return Fp8Config{.block = block_of(*found, "weight_block_size", file)};
  if (is("quant_method", "compressed-tensors") && is("format", "float-quantized"))
    return config_of_groups(*found, file);
  return std::nullopt;
}

void Fp8Matrix::expand(std::int64_t first, Tensor to) const {
  switch (to.dtype) {
    case DType::f32: return expand_rows<float>(*this, first, to);
    case DType::bf16: return expand_rows<Bf16>(*this, first, to);
    case DType::f16: return expand_rows<F16>(*this, first, to);
    default: fail(ErrorKind::internal, {.cause = "fp8: a result that is not f32, bf16 or f16"});
  }
}

std::vector<float> Fp8Matrix::scale_values() const {
  std::vector<float> values;
  for (std::int64_t i = 0; i < scales.numel(); ++i) values.push_back(scale_at(scales, i));
  return values;
}

bool is_fp8(const SafetensorsReader& reader, const std::string& weight) {
  const auto found = reader.tensors().find(weight);
  return found != reader.tensors().end() && found->second.dtype == DType::f8_e4m3;
}

Fp8Matrix read_fp8(const SafetensorsReader& reader, const std::string& weight, const Fp8Config& config) {
  const auto refuse = [&](const std::string& cause) {
    fail(ErrorKind::input, {.cause = cause,
                            .place = fmt::format("{}: {}", reader.path().string(), weight),
                            .remedy = "config.json and the weights must belong together"});
  };
  const auto* const ending = std::find_if(std::begin(kScaleEndings), std::end(kScaleEndings),
                                          [&](const char* e) { return reader.contains(weight + e); });
  if (ending == std::end(kScaleEndings)) refuse("has FP8 numbers but no scale (weight_scale_inv or weight_scale)");
  Fp8Matrix m{.codes = reader.at(weight), .scales = reader.at(weight + *ending), .block = config.block};
  if (m.codes.dtype != DType::f8_e4m3 || m.codes.shape.rank != 2)
    refuse(fmt::format("is {} {}, but a tensor with a scale must be an FP8 matrix", name_of(m.codes.dtype),
                       to_string(m.codes.shape)));
  if (m.codes.numel() == 0) refuse(fmt::format("is an empty FP8 matrix {}", to_string(m.codes.shape)));
  const bool number = is_float(m.scales.dtype) && m.scales.dtype != DType::f64;
  if (!number && m.scales.dtype != DType::u8) refuse(fmt::format("has scales of type {}", name_of(m.scales.dtype)));
  const std::int64_t rows = m.codes.shape[0], columns = m.codes.shape[1], count = m.scales.numel();
  if (m.block.rank == 0) m.block = count == 1 ? Shape{rows, columns} : Shape{1, columns};
  const Shape grid{rounded_up(rows, m.block[0]), rounded_up(columns, m.block[1])};
  if (!has_shape(m.scales, grid))
    refuse(fmt::format("has {} scales, but {} in blocks of {} needs {}", to_string(m.scales.shape),
                       to_string(m.codes.shape), to_string(m.block), to_string(grid)));
  return m;
}

bool is_fp8_part(const std::string& name) {
  constexpr const char* kParts[] = {".weight_scale_inv", ".weight_scale", ".input_scale", ".activation_scale"};
  return std::any_of(std::begin(kParts), std::end(kParts), [&](const char* part) { return name.ends_with(part); });
}

}  // namespace qtrain
