#include "quant/bnb.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace qtrain {
namespace {

constexpr const char *kStateKey = ".quant_state.bitsandbytes__", *kWeightState = ".weight.quant_state.bitsandbytes__";

[[noreturn]] void refuse(const std::string& place, const std::string& cause) {
  fail(ErrorKind::input, {.cause = cause, .place = place, .remedy = "quantize the model again, or download it again"});
}

std::string_view name_of(FourBit type) {
  return type == FourBit::nf4 ? "nf4" : "fp4";
}

ConstTensor map_view(FourBit type) {
  return view_of(std::span<const float>(map_of(type)), {16});
}

/// Typed access to the quant_state JSON of a 4-bit matrix.
class StateFields {
 public:
  StateFields(const Json& json, const std::string& place) : json_(json), place_(place) {
    if (!json.is_object()) refuse(place, "is not a JSON object");
  }
  bool has(const char* key) const { return json_.contains(key); }
  std::int64_t integer(const char* key) const {
    const Json& v = at(key);
    if (!v.is_number_integer() || v > std::int64_t{1} << 40) refuse(place_, fmt::format("{} is not a size", key));
    return v.get<std::int64_t>();
  }
  std::string text(const char* key) const {
    const Json& v = at(key);
    if (!v.is_string()) refuse(place_, fmt::format("{} is not a string", key));
    return v.get<std::string>();
  }
  float number(const char* key) const {
    const Json& v = at(key);
    if (!v.is_number() || !std::isfinite(v.get<float>())) refuse(place_, fmt::format("{} is not a number", key));
    return v.get<float>();
  }
  Shape matrix(const char* key) const {
    constexpr std::int64_t kMax = std::int64_t{1} << 31;
    const Json& v = at(key);
    Shape shape(0, 0);
    const bool fits = v.is_array() && v.size() == 2 && std::all_of(v.begin(), v.end(), [](const Json& extent) {
                        return extent.is_number_integer() && extent > 0 && extent < kMax;
                      });
    if (!fits) refuse(place_, fmt::format("{} is not the shape of a matrix", key));
    for (std::size_t i = 0; i < 2; ++i) shape.dims[i] = v[i].get<std::int64_t>();
    return shape;
  }

 private:
  const Json& at(const char* key) const {
    if (!has(key)) refuse(place_, fmt::format("has no {}", key));
    return json_[key];
  }
  const Json& json_;
  const std::string& place_;
};

/// A stored part of a matrix, with the dtype and number of elements that it must have.
struct Part {
  std::string name;
  DType dtype;
  std::int64_t elements;
};
ConstTensor read_part(const SafetensorsReader& reader, const Part& part) {
  const ConstTensor t = reader.at(part.name);
  if (t.dtype != part.dtype || t.numel() != part.elements)
    refuse(fmt::format("{}: {}", reader.path().string(), part.name),
           fmt::format("is {} {}, but quant_state requires {} elements of {}", name_of(t.dtype), to_string(t.shape),
                       part.elements, name_of(part.dtype)));
  return t.reshaped({t.numel()});
}

/// bitsandbytes computes with the map of the type; the stored map only has to agree with it.
void check_map(const ConstTensor& stored, FourBit type, const std::string& place) {
  const auto map = map_of(type);
  for (std::size_t i = 0; i < 16; ++i)
    if (!(std::abs(stored.as<float>()[i] - map[i]) <= 1e-6F))
      refuse(place, fmt::format("value {} is {} and not {} as in {}", i, stored.as<float>()[i], map[i], name_of(type)));
}

void check_finite(ConstTensor x, std::span<const float> absmax, const std::string& name) {
  if (std::all_of(absmax.begin(), absmax.end(), [](float v) { return std::isfinite(v); })) return;
  const auto report = [&]<class T>() {
    const auto values = x.span<T>();
    const auto bad = std::find_if(values.begin(), values.end(), [](T v) { return !std::isfinite(float(v)); });
    fail(ErrorKind::input, {.cause = fmt::format("element {} is {}, so the tensor cannot be quantized",
                                                 bad - values.begin(), float(*bad)),
                            .place = name,
                            .remedy = "the weights are damaged; download the model again"});
  };
  if (x.dtype == DType::f32) return report.template operator()<float>();
  if (x.dtype == DType::f16) return report.template operator()<F16>();
  report.template operator()<Bf16>();
}

template <class T>
Tensor tensor_of(std::vector<T>& values) {
  return view_of(std::span(values), {static_cast<std::int64_t>(values.size())});
}
template <class T>
ConstTensor tensor_of(const std::vector<T>& values) {
  return view_of(std::span(values), {static_cast<std::int64_t>(values.size())});
}

}  // namespace

std::string quant_state_json(const QuantState& state) {
  Json json;
  json["quant_type"] = std::string(name_of(state.type));
  json["blocksize"] = state.blocksize;
  json["dtype"] = std::string(name_of(state.dtype));
  json["shape"] = {state.shape[0], state.shape[1]};
  if (state.nested) {
    json["nested_blocksize"] = state.nested->blocksize;
    json["nested_dtype"] = "float32";
    json["nested_offset"] = static_cast<double>(state.nested->offset);
  }
  return dump_json(json);
}

QuantState parse_quant_state(std::string_view json, FourBit type, const std::string& place) {
  constexpr std::int64_t kLargestNested = 4096;
  const Json parsed = parse_json(json, place);
  const StateFields fields(parsed, place);
  if (fields.text("quant_type") != name_of(type))
    refuse(place,
           fmt::format("quant_type is {}, but the tensor's name says {}", fields.text("quant_type"), name_of(type)));
  const std::int64_t blocksize = fields.integer("blocksize");
  if (!is_blocksize4(blocksize))
    refuse(place, fmt::format("blocksize {} is not a power of two in 32..4096", blocksize));
  QuantState state{.type = type, .blocksize = static_cast<int>(blocksize), .shape = fields.matrix("shape")};
  const std::string dtype = fields.text("dtype");
  if (dtype != "float32" && dtype != "float16" && dtype != "bfloat16")
    refuse(place, fmt::format("dtype {} is not float32, float16 or bfloat16", dtype));
  state.dtype = dtype_named(dtype);
  if (!fields.has("nested_blocksize")) return state;
  const std::int64_t nested = fields.integer("nested_blocksize");
  if (nested < 1 || nested > kLargestNested || (nested & (nested - 1)) != 0)
    refuse(place, fmt::format("nested_blocksize {} is not a power of two up to {}", nested, kLargestNested));
  if (fields.text("nested_dtype") != "float32") refuse(place, "nested_dtype is not float32");
  state.nested = {.blocksize = static_cast<int>(nested), .offset = fields.number("nested_offset")};
  return state;
}

ops::Blocks4 Matrix4::blocks() const {
  ops::Blocks4 b{.codes = codes, .absmax = absmax, .map = map, .shape = state.shape, .blocksize = state.blocksize};
  if (!state.nested) return b;
  b.nested_absmax = nested_absmax;
  b.nested_map = nested_map;
  b.nested_blocksize = state.nested->blocksize;
  b.offset = view_of(std::span(&state.nested->offset, 1), {1});
  return b;
}

Sizes4 sizes4(const QuantState& state) {
  const std::int64_t n = state.shape.numel(), blocks = blocks_of(n, state.blocksize);
  return {.codes = (n + 1) / 2,
          .absmax = blocks,
          .nested_absmax = state.nested ? blocks_of(blocks, state.nested->blocksize) : 0};
}

std::size_t Sizes4::bytes() const {
  constexpr std::int64_t kMap = 16, kNestedMap = 256, kFloat = 4;
  const std::int64_t scales = nested_absmax == 0 ? kFloat * absmax : absmax + kFloat * (nested_absmax + kNestedMap + 1);
  return static_cast<std::size_t>(codes + scales + kFloat * kMap);
}

Matrix4 Quantized4::view() const {
  return {.state = state,
          .codes = tensor_of(codes),
          .absmax = state.nested ? tensor_of(absmax_codes) : tensor_of(absmax),
          .map = map_view(state.type),
          .nested_absmax = state.nested ? tensor_of(nested_absmax) : ConstTensor{},
          .nested_map = state.nested ? tensor_of(nested_map) : ConstTensor{}};
}

Quantized4 quantize_matrix(Ctx& ctx, ConstTensor x, const Quantize4Options& options, const std::string& name) {
  if (x.dtype != DType::f32 && x.dtype != DType::f16 && x.dtype != DType::bf16)
    fail(ErrorKind::input,
         {.cause = fmt::format("has dtype {}: only float32, float16 and bfloat16 can be quantized", name_of(x.dtype)),
          .place = name});
  Quantized4 q{.state = {.type = options.type, .blocksize = options.blocksize, .dtype = x.dtype, .shape = x.shape}};
  if (options.nested) q.state.nested = QuantState::Nested{};
  const Sizes4 sizes = sizes4(q.state);
  const auto count = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  q.codes.resize(count(sizes.codes));
  q.absmax.resize(count(sizes.absmax));
  ops::quantize4(ctx, {.codes = tensor_of(q.codes),
                       .absmax = tensor_of(q.absmax),
                       .x = x,
                       .type = options.type,
                       .blocksize = options.blocksize});
  check_finite(x, q.absmax, name);
  if (!options.nested) return q;
  q.nested_map.assign(kSignedDynamicMap.begin(), kSignedDynamicMap.end());
  q.nested_absmax.resize(count(sizes.nested_absmax));
  q.absmax_codes.resize(count(sizes.absmax));
  ops::nest_absmax(ctx, {.codes = tensor_of(q.absmax_codes),
                         .nested_absmax = tensor_of(q.nested_absmax),
                         .offset = view_of(std::span(&q.state.nested->offset, 1), {1}),
                         .absmax = tensor_of(q.absmax),
                         .map = tensor_of(std::as_const(q.nested_map)),
                         .blocksize = q.state.nested->blocksize});
  q.absmax.clear();
  return q;
}

bool has_matrix4(const SafetensorsReader& reader, const std::string& weight) {
  const std::string key = weight + kStateKey;
  return reader.contains(key + "nf4") || reader.contains(key + "fp4");
}

Matrix4 read_matrix4(const SafetensorsReader& reader, const std::string& weight) {
  const std::string key = weight + kStateKey;
  const FourBit type = reader.contains(key + "nf4") ? FourBit::nf4 : FourBit::fp4;
  const std::string name = key + std::string(name_of(type)),
                    place = fmt::format("{}: {}", reader.path().string(), name);
  const ConstTensor json = reader.at(name);
  if (json.dtype != DType::u8) refuse(place, "is not a uint8 tensor");
  Matrix4 m{.state = parse_quant_state({reinterpret_cast<const char*>(json.data), json.bytes()}, type, place)};
  const Sizes4 sizes = sizes4(m.state);
  const ConstTensor codes = reader.at(weight);  // any dtype: see bnb_4bit_quant_storage
  if (codes.bytes() != static_cast<std::size_t>(sizes.codes))
    refuse(fmt::format("{}: {}", reader.path().string(), weight),
           fmt::format("has {} bytes, but quant_state requires {}", codes.bytes(), sizes.codes));
  m.codes = {codes.data, DType::u8, {sizes.codes}, {}};
  const DType scale = m.state.nested ? DType::u8 : DType::f32;
  m.absmax = read_part(reader, {.name = weight + ".absmax", .dtype = scale, .elements = sizes.absmax});
  const std::string map = weight + ".quant_map";
  check_map(read_part(reader, {.name = map, .dtype = DType::f32, .elements = 16}), type,
            fmt::format("{}: {}", reader.path().string(), map));
  m.map = map_view(type);
  if (!m.state.nested) return m;
  m.nested_absmax =
      read_part(reader, {.name = weight + ".nested_absmax", .dtype = DType::f32, .elements = sizes.nested_absmax});
  m.nested_map = read_part(reader, {.name = weight + ".nested_quant_map", .dtype = DType::f32, .elements = 256});
  return m;
}

namespace {

std::string scale_name(const std::string& weight) {
  return weight.substr(0, weight.size() - std::string_view("weight").size()) + "SCB";
}

}  // namespace

bool has_matrix8(const SafetensorsReader& reader, const std::string& weight) {
  return weight.ends_with(".weight") && reader.contains(scale_name(weight));
}

Matrix8 read_matrix8(const SafetensorsReader& reader, const std::string& weight) {
  const std::string place = fmt::format("{}: {}", reader.path().string(), weight);
  const ConstTensor codes = reader.at(weight);
  if (codes.dtype != DType::i8 || codes.shape.rank != 2)
    refuse(place, fmt::format("is {} {}, but a tensor with SCB must be an int8 matrix", name_of(codes.dtype),
                              to_string(codes.shape)));
  const std::string format = weight + "_format";
  if (reader.contains(format)) {
    const ConstTensor layout = read_part(reader, {.name = format, .dtype = DType::u8, .elements = 1});
    if (*layout.as<std::uint8_t>() != 0)
      fail(ErrorKind::input, {.cause = "is stored in a layout for one generation of GPUs, which is not supported",
                              .place = place,
                              .remedy = "save the model with bitsandbytes 0.45 or newer"});
  }
  return {.codes = codes,
          .scale = read_part(reader, {.name = scale_name(weight), .dtype = DType::f32, .elements = codes.shape[0]})};
}

bool is_quant_part(const std::string& name) {
  constexpr std::string_view kParts[] = {
      ".weight.absmax", ".weight.quant_map", ".weight.nested_absmax", ".weight.nested_quant_map",
      ".SCB",           ".weight_format"};
  const auto ends = [&](std::string_view part) { return name.ends_with(part); };
  return std::any_of(std::begin(kParts), std::end(kParts), ends) || name.find(kWeightState) != std::string::npos;
}

}  // namespace qtrain
