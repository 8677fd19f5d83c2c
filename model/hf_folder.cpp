#include "model/hf_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/finite.h"
#include "core/os/paths.h"
#include "core/transfer.h"
#include "kernels/elementwise.h"
#include "model/adapter_init/converted_adapter.h"
#include "model/dense_weight.h"
#include "model/families/family.h"
#include "model/tied_head.h"
#include "quant/mxfp4.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

bool expected_extra(const std::string& name) {
  return name.ends_with("rotary_emb.inv_freq") || name == kHeadWeight;
}

/// A file, and whether its values must be finite: true for weights, but not for optimizer state, whose squares may
/// overflow.
struct ReadValues {
  enum class Kind : std::uint8_t { finite, any };
  const SafetensorsReader& reader;
  Kind kind = Kind::finite;
  const ModelConfig* config = nullptr;  ///< the base model's, if these are its weights
  BaseChange* change = nullptr;         ///< changes them, if it is not null

  std::string name_of(const std::string& weight) const {
    return config ? weight_in(reader, weight, *config) : name_in(reader, weight);
  }
};

void require_finite(ConstTensor values, const std::string& place) {
  if (const auto bad = first_nonfinite(values))
    fail(ErrorKind::input, {.cause = describe_element(values, *bad) + ", which cannot be trained or used",
                            .place = place,
                            .remedy = "the weights are damaged; download the model again"});
}

// A tensor of a floating-point type. Throws an input error for other types and shapes.
DenseWeight read_dense(Ctx& ctx, const ReadValues& from, const std::string& name, Shape shape) {
  const SafetensorsReader& reader = from.reader;
  DenseWeight weight(ctx, reader, name, from.config);
  const ConstTensor found = weight.values();
  const std::string place = fmt::format("{}: {}", reader.path().string(), name);
  if (!is_float(found.dtype))
    fail(ErrorKind::input,
         {.cause = fmt::format("has dtype {}, which is not a floating-point type", name_of(found.dtype)),
          .place = place,
          .remedy = "use the folder with the unquantized weights"});
  if (!(found.shape == shape))
    fail(ErrorKind::input,
         {.cause = fmt::format("has shape {}, but config.json requires {}", to_string(found.shape), to_string(shape)),
          .place = place,
          .remedy = "config.json and the weights must belong together"});
  if (from.kind == ReadValues::Kind::finite) require_finite(found, place);
  return weight;
}

// Loads codes, such as those of an optimizer's state, without conversion.
void load_codes(Ctx& ctx, const SafetensorsReader& reader, const Param& p) {
  const ConstTensor from = reader.at(p.spec.name);
  if (from.dtype != p.spec.dtype || !(from.shape == p.spec.shape))
    fail(ErrorKind::input, {.cause = fmt::format("is {} {} instead of {} {}", name_of(from.dtype),
                                                 to_string(from.shape), name_of(p.spec.dtype), to_string(p.spec.shape)),
                            .place = fmt::format("{}: {}", reader.path().string(), p.spec.name)});
  const ConstTensor flat = from.reshaped({from.numel()});
  write_values(ctx, p, [&](std::int64_t first, Tensor chunk) {
    std::memcpy(chunk.data, flat.slice(first, chunk.numel()).data, chunk.bytes());
  });
  reader.release(from);
}

Shape shape_in_files(const ParamSpec& spec) {
  return spec.file_order ? spec.file_order->in_files : spec.shape;
}

/// The values of a tensor of a file, converted to the layout and dtype of memory.
struct Reordered {
  Reordered(Ctx& ctx, ConstTensor file, const ParamSpec& spec)
      : converted_(static_cast<std::size_t>(file.numel()) * size_of(spec.dtype)), memory_(converted_.size()) {
    const Tensor same{converted_.data(), spec.dtype, file.shape, {}};
    ops::run_cpu(ctx, ops::Copy{.y = store(same), .x = file});
    y = {memory_.data(), spec.dtype, spec.shape, {}};
    from_file_order(*spec.file_order, same, y);
  }
  Tensor y;

 private:
  std::vector<std::byte> converted_, memory_;
};

// Loads a parameter from separate tensors for its slices. Returns their names.
std::vector<std::string> load_slices(Ctx& ctx, const ReadValues& from, const Param& p) {
  const SafetensorsReader& reader = from.reader;
  std::vector<std::string> names;
  const auto count = static_cast<std::int64_t>(p.spec.slices_in_files.size());
  const Shape slice{p.spec.shape[1], p.spec.shape[2]};
  for (std::int64_t i = 0; i < count; ++i) {
    names.push_back(name_in(reader, p.spec.slices_in_files[static_cast<std::size_t>(i)]));
    const DenseWeight weight = read_dense(ctx, from, names.back(), slice);
    const ConstTensor flat = weight.values().reshaped({slice.numel()});
    const ElementRange range{.begin = i * flat.numel(), .count = flat.numel()};
    write_values(ctx, p, range, [&](std::int64_t first, Tensor chunk) {
      ops::run_cpu(ctx, ops::Copy{.y = store(chunk), .x = flat.slice(first - range.begin, chunk.numel())});
    });
    weight.release();
  }
  return names;
}

// Loads a parameter from MXFP4, whose layout is that of memory. Returns the names of its tensors.
std::vector<std::string> load_mxfp4(Ctx& ctx, const SafetensorsReader& reader, const Param& p) {
  const std::string name = name_in(reader, p.spec.name + "_blocks");
  const std::string matrix = name.substr(0, name.rfind('_'));
  const Mxfp4 values = read_mxfp4(reader, matrix, p.spec.shape);
  std::vector<float> dense;
  write_values(ctx, p, [&](std::int64_t first, Tensor chunk) {
    dense.resize(static_cast<std::size_t>(chunk.numel()));
    const Tensor wide = view_of(std::span(dense), chunk.shape);
    values.expand(first, wide);
    ops::run_cpu(ctx, ops::Copy{.y = store(chunk), .x = wide});
  });
  reader.release(values.blocks);
  return {name, matrix + "_scales"};
}

// Loads a parameter from the tensor `saved.base` in the file. Returns that tensor's name.
std::string load_from(Ctx& ctx, const ReadValues& from, const SavedWeight& saved) {
  const SafetensorsReader& reader = from.reader;
  const Param& p = *saved.param;
  std::string name = from.name_of(saved.base);
  if (!is_float(p.spec.dtype)) {
    load_codes(ctx, reader, p);
    return name;
  }
  const DenseWeight weight = read_dense(ctx, from, name, shape_in_files(p.spec));
  const ConstTensor values = from.change ? from.change->values(saved.base, weight.values()) : weight.values();
  std::optional<Reordered> reordered;
  if (p.spec.file_order) reordered.emplace(ctx, values, p.spec);
  const ConstTensor flat = (reordered ? ConstTensor(reordered->y) : values).reshaped({values.numel()});
  write_values(ctx, p, [&](std::int64_t first, Tensor chunk) {
    ops::run_cpu(ctx, ops::Copy{.y = store(chunk), .x = flat.slice(first, chunk.numel())});
  });
  weight.release();
  return name;
}

void load_one(Ctx& ctx, const ReadValues& from, Param& p, std::vector<std::string>& used) {
  const SafetensorsReader& reader = from.reader;
  const bool mxfp4 = p.spec.shape.rank == 3 && reader.contains(name_in(reader, p.spec.name + "_blocks"));
  if (p.spec.slices_in_files.empty() && !mxfp4) return used.push_back(load_from(ctx, from, {&p, p.spec.name}));
  for (std::string& name : mxfp4 ? load_mxfp4(ctx, reader, p) : load_slices(ctx, from, p))
    used.push_back(std::move(name));
}

// The name of a weight in an adapter file.
std::string saved_name(const char* weight) {
  return std::string(kPeftPrefix) + weight;
}

// A trained embedding that is also the head: PEFT saves it under both names.
Param* saved_tied_head(Transformer& model) {
  return model.params().has_tied_head() ? model.adapter().find(saved_name(kEmbeddingWeight)) : nullptr;
}

// Tensors of the file that were not used.
std::vector<std::string> unused(const SafetensorsReader& reader, std::vector<std::string> used) {
  std::vector<std::string> names;
  std::sort(used.begin(), used.end());
  for (const auto& [name, tensor] : reader.tensors())
    if (!std::binary_search(used.begin(), used.end(), name) && !expected_extra(name)) names.push_back(name);
  return names;
}

// The name of the first matrix that bitsandbytes quantized.
std::optional<std::string> quantized_tensor(const SafetensorsReader& reader) {
  for (const auto& [name, tensor] : reader.tensors())
    if (has_matrix4(reader, name) || has_matrix8(reader, name)) return name;
  return {};
}

// Passes on a tensor in the file's dtype, a chunk at a time.
void produce(Ctx& ctx, ConstTensor values, DType dtype, const std::function<void(std::span<const std::byte>)>& append) {
  constexpr std::int64_t kChunk = std::int64_t{1} << 20;
  std::vector<std::byte> memory;
  const auto convert = [&](ConstTensor part) {
    memory.resize(static_cast<std::size_t>(part.numel()) * size_of(dtype));
    const Tensor converted{memory.data(), dtype, part.shape, {}};
    ops::run_cpu(ctx, ops::Copy{.y = store(converted), .x = part});
    append(memory);
  };
  read_chunks(ctx, values, [&](ConstTensor chunk) {
    if (chunk.dtype == dtype) return append({chunk.data, chunk.bytes()});
    for (std::int64_t begin = 0; begin < chunk.numel(); begin += kChunk)
      convert(chunk.slice(begin, std::min(kChunk, chunk.numel() - begin)));
  });
}

// Passes on the whole parameter; only its one owner does.
void produce_reordered(Ctx& ctx, const Param& p, DType dtype,
                       const std::function<void(std::span<const std::byte>)>& append) {
  if (p.own.count() == 0) return;
  std::vector<std::byte> whole;
  produce(ctx, p.own.value, dtype,
          [&](std::span<const std::byte> part) { whole.insert(whole.end(), part.begin(), part.end()); });
  std::vector<std::byte> file(whole.size());
  to_file_order(*p.spec.file_order, {whole.data(), dtype, p.spec.shape, {}}, {file.data(), dtype, p.spec.shape, {}});
  append(file);
}

// Checks weights as they are written, in the file's dtype: nothing else would notice a bad last update.
TensorSource checked(TensorSource source) {
  source.produce = [name = source.name, dtype = source.dtype, produce = std::move(source.produce)](const auto& append) {
    produce([&](std::span<const std::byte> bytes) {
      const auto count = static_cast<std::int64_t>(bytes.size() / size_of(dtype));
      const ConstTensor written{bytes.data(), dtype, {count}, {}};
      if (first_nonfinite(written))
        fail(ErrorKind::non_finite,
             {.cause = fmt::format("has values that are not finite in {}, after the last update", name_of(dtype)),
              .place = name,
              .remedy = "lower learning_rate; nothing was overwritten, and earlier checkpoints are intact"});
      append(bytes);
    });
  };
  return source;
}

std::vector<TensorSource> checked(std::vector<TensorSource> sources) {
  for (TensorSource& source : sources) source = checked(std::move(source));
  return sources;
}

// The part of elements [range.begin, range.begin + range.count) of a parameter that this rank owns.
TensorSource source_of(Ctx& ctx, const Param& p, ElementRange range, DType dtype) {
  const std::int64_t begin = std::max(range.begin, p.own.begin);
  const std::int64_t count = std::max<std::int64_t>(std::min(range.begin + range.count, p.own.end()) - begin, 0);
  const Tensor flat = p.own.value.reshaped({p.own.count()});
  const Tensor own = count == 0 ? flat.slice(0, 0) : flat.slice(begin - p.own.begin, count);
  return {.name = p.spec.name,
          .dtype = dtype,
          .shape = {},
          .produce = [&ctx, own, dtype](const auto& append) { produce(ctx, own, dtype, append); },
          .part = TensorSource::Part{.begin = begin - range.begin, .count = count}};
}

TensorSource source_of(Ctx& ctx, const Param& p, DType dtype) {
  TensorSource source = source_of(ctx, p, {0, p.spec.shape.numel()}, dtype);
  source.shape = shape_in_files(p.spec);
  if (p.spec.file_order)
    source.produce = [&ctx, &p, dtype](const auto& append) { produce_reordered(ctx, p, dtype, append); };
  return source;
}

void add_sources(Ctx& ctx, const Param& p, DType dtype, std::vector<TensorSource>& sources) {
  const std::vector<std::string>& slices = p.spec.slices_in_files;
  if (slices.empty()) sources.push_back(source_of(ctx, p, dtype));
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const Shape slice{p.spec.shape[1], p.spec.shape[2]};
    const ElementRange range{.begin = static_cast<std::int64_t>(i) * slice.numel(), .count = slice.numel()};
    sources.push_back(source_of(ctx, p, range, dtype));
    sources.back().name = slices[i];
    sources.back().shape = slice;
  }
}

}  // namespace

std::vector<std::string> load_parameters(Ctx& ctx, ParamStore& store, const fs::path& path) {
  const SafetensorsReader reader(path);
  std::vector<std::string> used;
  for (Param& p : store.all()) load_one(ctx, {reader}, p, used);
  return unused(reader, std::move(used));
}

void load_state(Ctx& ctx, ParamStore& store, const fs::path& path) {
  const SafetensorsReader reader(path);
  std::vector<std::string> used;
  for (Param& p : store.all()) load_one(ctx, {reader, ReadValues::Kind::any}, p, used);
}

std::vector<std::string> load_adapter(Ctx& ctx, Runner& runner, const fs::path& path) {
  Transformer& model = runner.model();
  std::vector<std::string> names = load_adapter_file(ctx, model, path);
  runner.values_changed();
  runner.measure_rows(ctx);
  const bool has_tied_head = saved_tied_head(model) != nullptr;
  // PEFT also saves the embedding under an adapter on it, and a head likewise.
  std::erase_if(names, [&](const std::string& name) {
    return name.ends_with(".base_layer.weight") ||
           (has_tied_head && without_adapter_name(name) == saved_name(kHeadWeight));
  });
  return names;
}

std::optional<Quantization> quantization_of_folder(const ModelConfig& config, const fs::path& path) {
  if (!config.quantization) return {};
  Quantization how{.bnb = *config.quantization, .source = config.dtype};
  const SafetensorsReader reader(path);
  const auto first = quantized_tensor(reader);
  const bool four = how.bnb.bits == BnbConfig::Bits::four;
  if (!first || has_matrix4(reader, *first) != four)
    fail(ErrorKind::input,
         {.cause =
              fmt::format("config.json says that the weights are quantized to {} bits, but they are not", four ? 4 : 8),
          .place = path.string(),
          .remedy = "remove quantization_config from config.json if the weights are dense"});
  if (!four) return how;
  const QuantState state = read_matrix4(reader, *first).state;
  how.blocksize = state.blocksize;
  how.bnb.quant_type = state.type;
  how.bnb.double_quant = state.nested.has_value();
  if (state.nested) how.nested_blocksize = state.nested->blocksize;
  return how;
}

Fp8Storage fp8_of_folder(const ModelConfig& config, const fs::path& path) {
  check(config.fp8.has_value(), "the folder is not in FP8");
  if (config.fp8->block.rank == 2) return {.block = config.fp8->block, .of_files = true};
  const SafetensorsReader reader(path);
  for (const auto& [name, tensor] : reader.tensors())
    if (is_fp8(reader, name)) {
      const bool one = read_fp8(reader, name, *config.fp8).scales.numel() == 1;
      return {.block = one ? Shape{0, 0} : Shape{1, 0}, .of_files = true};
    }
  fail(ErrorKind::input, {.cause = "config.json says that the weights are in FP8, but they are not",
                          .place = path.string(),
                          .remedy = "remove quantization_config from config.json if the weights are dense"});
}

std::vector<std::string> load_base_weights(Ctx& ctx, Runner& runner, const fs::path& path, BaseChange* change) {
  Transformer& model = runner.model();
  const SafetensorsReader reader(path);
  const ReadValues from{.reader = reader, .config = &model.config(), .change = change};
  const bool serialized = quantized_tensor(reader).has_value();
  std::vector<std::string> used;
  for (Param& p : model.weights().all())
    if (!model.params().is_quantized_part(p)) load_one(ctx, from, p, used);
  for (const SavedWeight& s : model.params().saved()) used.push_back(load_from(ctx, from, s));
  for (const QuantizedLinear& q : model.quantized()) used.push_back(name_in(reader, q.name()));
  quantize_all(ctx, model.quantized(), [&](const QuantizedLinear& q, const GiveDense& give) {
    const std::string name = name_in(reader, q.name());
    if (serialized || (q.has_scales_of_files() && is_fp8(reader, name))) {
      q.load(ctx, reader, name);
      return reader.release(reader.at(name));
    }
    // quantize() checks values
    const DenseWeight dense = read_dense(ctx, {reader, ReadValues::Kind::any, from.config}, name, q.shape());
    const ConstTensor values = change ? change->values(q.name(), dense.values()) : dense.values();
    give(values, fmt::format("{}: {}", reader.path().string(), name));
    dense.release();
  });
  runner.values_changed();
  std::vector<std::string> names = unused(reader, std::move(used));
  if (!model.quantized().empty()) std::erase_if(names, is_quant_part);
  if (model.config().fp8) std::erase_if(names, is_fp8_part);
  return names;
}

std::vector<TensorSource> tensors_of(Ctx& ctx, const ParamStore& store) {
  std::vector<TensorSource> sources;
  for (const Param& p : store.all()) add_sources(ctx, p, p.spec.dtype, sources);
  return sources;
}

void save_model(Ctx& ctx, Transformer& model, const ModelFolder& to) {
  check(model.quantized().empty(), "save_model: quantized weights are not written");
  if (to.writers != Writers::other) {
    create_folders(to.folder);
    Json config = model.config().json;
    config.erase("torch_dtype");
    config["dtype"] = std::string(name_of(to.dtype));
    config["architectures"] = Json::array({model.config().architecture});
    write_file(to.folder / "config.json", dump_json(config, 2) + "\n");
    copy_generation_config(to.source, to.folder);
  }
  std::vector<TensorSource> sources;
  for (const Param& p : model.weights().all()) add_sources(ctx, p, to.dtype, sources);
  write_sharded(to.folder, checked(std::move(sources)), kDefaultShardBytes, to.writers);
}

void save_adapter(Ctx& ctx, Transformer& model, const ModelFolder& to) {
  check(model.options().lora.has_value(), "save_adapter: the model has no adapter");
  if (to.writers != Writers::other) {
    create_folders(to.folder);
    write_file(to.folder / "adapter_config.json",
               dump_json(lora_config_json(in_files(*model.options().lora), linear_names(model.config())), 2) + "\n");
    copy_generation_config(to.source, to.folder);
  }
  std::vector<TensorSource> sources = adapter_sources(ctx, model);
  if (const Param* embedding = saved_tied_head(model)) {
    sources.push_back(source_of(ctx, *embedding, embedding->spec.dtype));
    sources.back().name = saved_name(kHeadWeight);
  }
  write_safetensors(to.folder / "adapter_model.safetensors", checked(std::move(sources)), to.writers);
}

}  // namespace qtrain
