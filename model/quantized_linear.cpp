#include "model/quantized_linear.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/transfer.h"
#include "kernels/elementwise.h"
#include "quant/fp8.h"

namespace qtrain {
namespace {

constexpr const char* kFourBitNames[] = {"nf4", "fp4"};

const char* name_of_code(FourBit type) {
  return kFourBitNames[static_cast<int>(type)];
}

QuantState state_of(const Quantization& how, Shape shape) {
  QuantState state{.type = how.bnb.quant_type, .blocksize = static_cast<int>(how.blocksize), .shape = shape};
  if (how.bnb.double_quant) state.nested = {.blocksize = static_cast<int>(how.nested_blocksize)};
  return state;
}

std::string describe4(FourBit type, std::int64_t blocksize, std::optional<std::int64_t> nested_blocksize) {
  const std::string nested =
      nested_blocksize ? fmt::format(", nested scales in blocks of {}", *nested_blocksize) : std::string();
  return fmt::format("{} in blocks of {}{}", name_of_code(type), blocksize, nested);
}

void send(Ctx& ctx, const Param& to, ConstTensor from) {
  check(to.spec.dtype == from.dtype && to.value.numel() == from.numel(), "a part of a quantized matrix does not fit");
  const std::size_t element = size_of(from.dtype);
  write_values(ctx, to, [&](std::int64_t first, Tensor chunk) {
    if (chunk.numel() > 0)
      std::memcpy(chunk.data, from.data + static_cast<std::size_t>(first) * element, chunk.bytes());
  });
}

/// Rounds values to a dtype; returns `dense` itself if that loses nothing.
ConstTensor rounded(Ctx& ctx, ConstTensor dense, DType dtype, std::vector<std::byte>& memory) {
  const bool holds = dtype == dense.dtype || dtype == DType::f32;
  if (holds && dense.dtype != DType::f64) return dense;
  memory.resize(static_cast<std::size_t>(dense.numel()) * size_of(dtype));
  const Tensor out{memory.data(), dtype, dense.shape, {}};
  ops::run_cpu(ctx, ops::Copy{.y = store(out), .x = dense});
  return out;
}

struct QuantizedRows {
  std::vector<std::int8_t> codes;
  std::vector<float> scale;
};

// As bitsandbytes does: converts the matrix to float16, multiplies each row by 127 / its largest magnitude, and rounds
// half to even.
QuantizedRows quantize_rows(Ctx& host, ConstTensor dense, const std::string& place) {
  std::vector<std::byte> memory;
  const ConstTensor half = rounded(host, dense, DType::f16, memory);
  const std::int64_t rows = dense.shape[0], width = dense.shape[1];
  QuantizedRows out{.codes = std::vector<std::int8_t>(static_cast<std::size_t>(rows * width)),
                    .scale = std::vector<float>(static_cast<std::size_t>(rows))};
  host.pool().run(rows, [&](std::int64_t r, int) {
    const std::span<const F16> row = half.slice(r, 1).span<F16>();
    float max = 0;
    for (const F16 v : row) {
      const float magnitude = std::abs(static_cast<float>(v));
      max = std::isnan(magnitude) ? std::numeric_limits<float>::infinity() : std::max(max, magnitude);
    }
    const float factor = max > 0 ? 1.0F / max * 127.0F : 0;  // rounded twice, as in torch
    out.scale[static_cast<std::size_t>(r)] = max;
    if (std::isinf(max)) return;
    std::int8_t* codes = out.codes.data() + r * width;
    for (const F16 v : row) *codes++ = static_cast<std::int8_t>(std::nearbyint(static_cast<float>(v) * factor));
  });
  if (std::any_of(out.scale.begin(), out.scale.end(), [](float scale) { return std::isinf(scale); }))
    fail(ErrorKind::input, {.cause = "has a value out of range for float16, which 8-bit quantization starts from",
                            .place = place,
                            .remedy = "use load_in_4bit, or no quantization"});
  return out;
}

}  // namespace

std::string Quantization::describe() const {
  if (fp8) return "fp8";
  if (bnb.bits == BnbConfig::Bits::eight) return "int8";
  return describe4(bnb.quant_type, blocksize, bnb.double_quant ? std::optional(nested_blocksize) : std::nullopt);
}

QuantizedLinear::QuantizedLinear(ParamStore& store, std::string name, Shape shape, const Quantization& how,
                                 const QuantizedLinear* before)
    : name_(std::move(name)), shape_(shape), how_(how) {
  if (how.fp8) {
    ParamSpec codes{.name = name_, .shape = shape, .dtype = DType::f8_e4m3, .init = {}};
    codes.continues = before && before->codes_->spec.shape.numel() % kShardAlign == 0;
    codes_ = &store.declare(std::move(codes));
    return;
  }
  const auto part = [&](const std::string& of, DType dtype, Shape extents) {
    return &store.declare({.name = of, .shape = extents, .dtype = dtype, .init = {}});
  };
  if (how.bnb.bits == BnbConfig::Bits::eight) {
    codes_ = part(name_, DType::i8, shape);
    scales_ = part(name_.substr(0, name_.rfind('.')) + ".SCB", DType::f32, {shape[0]});
    return;
  }
  const Sizes4 sizes = sizes4(state_of(how, shape));
  const bool nested = how.bnb.double_quant;
  codes_ = part(name_, DType::u8, {sizes.codes, 1});
  scales_ = part(name_ + ".absmax", nested ? DType::u8 : DType::f32, {sizes.absmax});
  map_ = part(name_ + ".quant_map", DType::f32, {16});
  if (!nested) return;
  nested_absmax_ = part(name_ + ".nested_absmax", DType::f32, {sizes.nested_absmax});
  nested_map_ = part(name_ + ".nested_quant_map", DType::f32, {256});
  offset_ = part(name_ + ".nested_offset", DType::f32, {1});
}

void QuantizedLinear::declare_scales(ParamStore& store, const QuantizedLinear* first) {
  if (!how_.fp8) return;
  shares_scale_ = first && how_.fp8->has_one_scale() && !how_.fp8->of_files;
  if (shares_scale_) {
    scales_ = first->scales_;
    return;
  }
  const Shape block = how_.fp8->block_of(shape_);
  scales_ = &store.declare({.name = name_ + "_scale",
                            .shape = {(shape_[0] + block[0] - 1) / block[0], (shape_[1] + block[1] - 1) / block[1]},
                            .dtype = DType::f32,
                            .init = {}});
}

bool QuantizedLinear::owns(const Param& p) const {
  for (const Param* part : {codes_, scales_, map_, nested_absmax_, nested_map_, offset_})
    if (part == &p) return true;
  return false;
}

std::size_t QuantizedLinear::state_bytes() const {
  std::size_t bytes = 0;
  for (const Param* part : {shares_scale_ ? nullptr : scales_, map_, nested_absmax_, nested_map_, offset_})
    if (part) bytes += part->kept.value.bytes();
  return bytes;
}

std::int64_t QuantizedLinear::part_elements() const {
  std::int64_t n = 0;
  for (const Param* part : {codes_, shares_scale_ ? nullptr : scales_, map_, nested_absmax_, nested_map_, offset_})
    if (part) n += part->value.numel();
  return n;
}

QuantizedWeight QuantizedLinear::weight() const {
  if (how_.fp8) return Fp8Weight{.codes = codes_->value, .scales = scales_->value, .block = how_.fp8->block_of(shape_)};
  if (how_.bnb.bits == BnbConfig::Bits::eight) return Rows8{.codes = codes_->value, .scale = scales_->value};
  ops::Blocks4 blocks{.codes = codes_->value,
                      .absmax = scales_->value,
                      .map = map_->value,
                      .shape = shape_,
                      .blocksize = static_cast<int>(how_.blocksize)};
  if (!offset_) return blocks;
  blocks.nested_absmax = nested_absmax_->value;
  blocks.nested_map = nested_map_->value;
  blocks.offset = offset_->value;
  blocks.nested_blocksize = static_cast<int>(how_.nested_blocksize);
  return blocks;
}

void QuantizedLinear::expand(Ctx& ctx, Tensor dense) const {
  qtrain::expand(ctx, weight(), dense);
}

void QuantizedLinear::load4(Ctx& ctx, const Matrix4& m, const std::string& place) const {
  const QuantState& s = m.state;
  const auto found = describe4(s.type, s.blocksize, s.nested ? std::optional(s.nested->blocksize) : std::nullopt);
  if (!(s.shape == shape_) || found != how_.describe())
    fail(ErrorKind::input, {.cause = fmt::format("is {} {}, but {} {} is expected", to_string(s.shape), found,
                                                 to_string(shape_), how_.describe()),
                            .place = place,
                            .remedy = "all matrices of a folder must be quantized the way config.json says"});
  send(ctx, *codes_, m.codes);
  send(ctx, *scales_, m.absmax);
  send(ctx, *map_, m.map);
  if (!s.nested) return;
  send(ctx, *nested_absmax_, m.nested_absmax);
  send(ctx, *nested_map_, m.nested_map);
  send(ctx, *offset_, view_of(std::span<const float>(&s.nested->offset, 1), {1}));
}

void QuantizedLinear::load8(Ctx& ctx, const Matrix8& m, const std::string& place) const {
  if (!(m.codes.shape == shape_))
    fail(ErrorKind::input, {.cause = fmt::format("has shape {}, but config.json requires {}", to_string(m.codes.shape),
                                                 to_string(shape_)),
                            .place = place,
                            .remedy = "config.json and the weights must belong together"});
  send(ctx, *codes_, m.codes);
  send(ctx, *scales_, m.scale);
}

void QuantizedLinear::load_fp8(Ctx& ctx, const SafetensorsReader& reader, const std::string& name) const {
  const Shape block = how_.fp8->block_of(shape_);
  const bool in_blocks = how_.fp8->block[1] > 0;
  const Fp8Matrix m = read_fp8(reader, name, {.block = in_blocks ? how_.fp8->block : Shape{}});
  if (!(m.codes.shape == shape_) || !(m.block == block))
    fail(ErrorKind::input,
         {.cause = fmt::format("is {} in blocks of {}, but {} in blocks of {} is expected", to_string(m.codes.shape),
                               to_string(m.block), to_string(shape_), to_string(block)),
          .place = fmt::format("{}: {}", reader.path().string(), name),
          .remedy = "all matrices of a folder must be quantized the way config.json says"});
  send(ctx, *codes_, m.codes);
  const std::vector<float> scales = m.scale_values();
  send(ctx, *scales_, view_of(std::span(scales), scales_->spec.shape));
}

void QuantizedLinear::load(Ctx& ctx, const SafetensorsReader& reader, const std::string& name) const {
  if (how_.fp8) return load_fp8(ctx, reader, name);
  const std::string place = fmt::format("{}: {}", reader.path().string(), name);
  const bool eight = how_.bnb.bits == BnbConfig::Bits::eight;
  if (eight ? !has_matrix8(reader, name) : !has_matrix4(reader, name))
    fail(ErrorKind::input, {.cause = "is not quantized the way config.json says",
                            .place = place,
                            .remedy = "layers that are not quantized must be listed in llm_int8_skip_modules"});
  if (eight)
    load8(ctx, read_matrix8(reader, name), place);
  else
    load4(ctx, read_matrix4(reader, name), place);
}

void QuantizedLinear::quantize(Ctx& ctx, Ctx& host, const Source& source) const {
  std::vector<std::byte> memory;
  const ConstTensor from = rounded(host, source.dense, how_.source, memory);
  if (how_.fp8) {
    const QuantizedFp8 q = quantize_fp8(from, how_.fp8->block_of(shape_), source.largest, source.place);
    send(ctx, *codes_, {reinterpret_cast<const std::byte*>(q.codes.data()), DType::f8_e4m3, shape_, {}});
    return send(ctx, *scales_, view_of(std::span(q.scales), scales_->spec.shape));
  }
  if (how_.bnb.bits == BnbConfig::Bits::eight) {
    const QuantizedRows rows = quantize_rows(host, from, source.place);
    send(ctx, *codes_, {reinterpret_cast<const std::byte*>(rows.codes.data()), DType::i8, shape_, {}});
    return send(ctx, *scales_, view_of(std::span<const float>(rows.scale), {shape_[0]}));
  }
  const Quantized4 q = quantize_matrix(
      host, from,
      {.type = how_.bnb.quant_type, .blocksize = static_cast<int>(how_.blocksize), .nested = how_.bnb.double_quant},
      source.place);
  load4(ctx, q.view(), source.place);
}

float QuantizedLinear::largest_of(Ctx& host, const Source& source) const {
  std::vector<std::byte> memory;
  return largest_magnitude(rounded(host, source.dense, how_.source, memory), source.place);
}

void quantize_all(Ctx& ctx, const std::deque<QuantizedLinear>& matrices,
                  const std::function<void(const QuantizedLinear&, const GiveDense&)>& read) {
  if (matrices.empty()) return;
  HostContext host(ctx);
  for (std::size_t begin = 0; begin < matrices.size();) {
    std::size_t end = begin + 1;
    while (end < matrices.size() && matrices[end].shares_scale()) ++end;
    std::optional<float> largest;
    for (std::size_t i = begin; end - begin > 1 && i < end; ++i)
      read(matrices[i], [&](ConstTensor dense, const std::string& place) {
        largest = std::max(largest.value_or(0), matrices[i].largest_of(host.get(), {dense, place}));
      });
    for (; begin < end; ++begin)
      read(matrices[begin], [&](ConstTensor dense, const std::string& place) {
        matrices[begin].quantize(ctx, host.get(), {dense, place, largest});
      });
  }
}

}  // namespace qtrain
