#include "convert/gguf/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "convert/gguf/export_metadata.h"
#include "convert/gguf/export_vocabulary.h"
#include "convert/gguf/layout.h"
#include "convert/stoppable_job.h"
#include "core/formats/gguf_write.h"
#include "core/formats/safetensors.h"
#include "core/os/paths.h"
#include "kernels/elementwise.h"
#include "model/dense_weight.h"
#include "model/families/family.h"
#include "model/hf_folder.h"
#include "model/module_names.h"
#include "model/tied_head.h"
#include "quant/bnb.h"
#include "quant/gguf_quantize.h"
#include "text/tokenizer/load.h"
#include "train/checkpoint/foreign_results.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kTogether = std::int64_t{1} << 22;  // values converted at a time
constexpr float kMaxF16 = 65504;

/// A type of exported weights. `file_type` is llama.cpp's general.file_type.
struct ExportType {
  GgufType type;
  std::string_view name;
  std::uint32_t file_type;
};
constexpr ExportType kTypes[] = {{GgufType::f32, "f32", 0},    {GgufType::f16, "f16", 1},
                                 {GgufType::bf16, "bf16", 32}, {GgufType::q8_0, "q8_0", 7},
                                 {GgufType::q4_0, "q4_0", 2},  {GgufType::q4_k, "q4_k", 14}};

bool is_quantized(GgufType type) {
  return gguf_block(type)->values > 1;
}

GgufType type_of_weight(const GgufWeight& weight, GgufType wanted) {
  if (weight.shape.size() == 1 || weight.full_precision) return GgufType::f32;
  if (!is_quantized(wanted)) return wanted;
  const bool outer = weight.gguf == "token_embd.weight" || weight.gguf == "output.weight";
  const GgufType first = outer ? GgufType::q8_0 : wanted;
  for (const GgufType type : {first, GgufType::q5_0})
    if (weight.shape.back() % static_cast<std::int64_t>(gguf_block(type)->values) == 0) return type;
  return GgufType::f16;
}

/// Converts elements of a tensor to f32, starting at element `first`.
void put_floats(ConstTensor from, std::int64_t first, std::span<float> out) {
  const auto copy = [&](const auto* values) {
    std::transform(values + first, values + first + out.size(), out.begin(),
                   [](auto v) { return static_cast<float>(v); });
  };
  switch (from.dtype) {
    case DType::f64: return copy(from.as<double>());
    case DType::f32: return copy(from.as<float>());
    case DType::f16: return copy(from.as<F16>());
    default: return copy(from.as<Bf16>());
  }
}

/// A tensor of the folder.
struct FolderTensor {
  std::string name;
  ConstTensor values;  ///< values, or codes of a quantized matrix
};

/// A weight of the model, its tensors in the folder (several for experts) and its type in the file.
struct ExportedTensor {
  GgufWeight weight;
  GgufType type;
  std::vector<FolderTensor> from;

  /// Elements that stay in order: a row of a matrix, or of a vector as much as is not reordered.
  std::int64_t width() const {
    return weight.shape.size() > 1 ? weight.shape.back() : weight.rotary_heads > 0 ? 1 : weight.shape[0];
  }
  /// Number of rows in each tensor of the folder.
  std::int64_t rows() const { return weight.shape.size() > 1 ? weight.shape_of_one()[0] : weight.shape[0] / width(); }
};

void check_range(const ExportedTensor& t, std::span<const float> values) {
  const bool narrow = t.type != GgufType::f32 && t.type != GgufType::bf16;
  for (const float x : values)
    if (narrow && !(std::abs(x) <= kMaxF16))
      fail(ErrorKind::input,
           {.cause = fmt::format("{} in tensor {} is out of range for {}", x, t.weight.name(), name_of(t.type)),
            .remedy = "choose --type bf16 or f32"});
}

/// Converts rows of `values` to blocks, starting at row `begin` in GGUF's order.
void put_rows(const ExportedTensor& t, ConstTensor values, std::int64_t begin, std::span<std::byte> blocks) {
  const auto width = static_cast<std::size_t>(t.width());
  const auto& block = *gguf_block(t.type);
  const std::size_t row_bytes = width / block.values * block.bytes;
  const RotaryRows order = rows_of(t.weight);
  const auto offset = static_cast<float>(t.weight.offset);
  std::vector<float> row(width);
  for (std::size_t r = 0; r < blocks.size() / row_bytes; ++r) {
    put_floats(values, order.in_hf(begin + static_cast<std::int64_t>(r)) * t.width(), row);
    if (offset != 0)
      for (float& x : row) x += offset;
    check_range(t, row);
    quantize_gguf(t.type, row, blocks.subspan(r * row_bytes, row_bytes));
  }
}

/// The weights of a folder, by name.
class Weights {
 public:
  Weights(Ctx& ctx, const fs::path& folder, const ModelConfig& config) : ctx_(ctx), config_(config), reader_(folder) {}

  ExportedTensor take(const GgufWeight& weight, GgufType type) {
    ExportedTensor t{.weight = weight, .type = type, .from = {}};
    for (const std::string& name : weight.names) t.from.push_back(take(name, weight.shape_of_one()));
    return t;
  }

  /// The values of a tensor; a quantized one is expanded into `memory`.
  ConstTensor dense(const FolderTensor& t, const GgufWeight& weight, std::vector<float>& memory) const {
    if (is_float(t.values.dtype)) return t.values;
    const auto extents = weight.shape_of_one();
    const Shape shape{extents[0], extents[1]};
    memory.resize(static_cast<std::size_t>(shape.numel()));
    const Tensor values = view_of(std::span(memory), shape);
    if (is_fp8(reader_, t.name)) {
      const DenseWeight weight(ctx_, reader_, t.name, &config_);
      ops::run_cpu(ctx_, ops::Copy{.y = store(values), .x = weight.values()});
    } else if (has_matrix4(reader_, t.name)) {
      const Matrix4 matrix = read_matrix4(reader_, t.name);
      expand(ctx_, matrix.blocks(), values);
    } else {
      const Matrix8 matrix = read_matrix8(reader_, t.name);
      expand(ctx_, Rows8{.codes = matrix.codes, .scale = matrix.scale}, values);
    }
    return values;
  }

  /// Releases the memory of a tensor that was written.
  void release(ConstTensor t) const { reader_.release(t); }

  /// Checks that every tensor was exported, except computed ones and the head of a tied model.
  void check_all_taken() const {
    for (const auto& [name, tensor] : reader_.tensors())
      if (!used_.contains(name) && name != kHeadWeight && !name.ends_with("rotary_emb.inv_freq") &&
          !is_quant_part(name) && !is_fp8_part(name))
        refuse(name, "does not belong to the model that config.json describes");
  }

 private:
  FolderTensor take(const std::string& wanted, const std::vector<std::int64_t>& expected) {
    const std::string name = weight_in(reader_, wanted, config_);
    used_.insert(name);
    const bool fp8 = config_.fp8 && is_fp8(reader_, name);
    if (fp8) read_fp8(reader_, name, *config_.fp8);  // throws unless its scales fit
    const bool quantized = fp8 || has_matrix4(reader_, name) || has_matrix8(reader_, name);
    const ConstTensor t = reader_.at(name);
    const Shape found = has_matrix4(reader_, name) ? read_matrix4(reader_, name).state.shape : t.shape;
    const std::vector<std::int64_t> shape(found.dims.begin(), found.dims.begin() + found.rank);
    if (shape != expected)
      refuse(name,
             fmt::format("has shape {}, but config.json requires [{}]", to_string(found), fmt::join(expected, ", ")));
    if (!quantized && !is_float(t.dtype))
      refuse(name, fmt::format("has dtype {}, which is not a floating-point type", name_of(t.dtype)));
    return {name, t};
  }
  [[noreturn]] void refuse(const std::string& name, const std::string& cause) const {
    fail(ErrorKind::input, {.cause = fmt::format("tensor {} {}", name, cause), .place = reader_.path().string()});
  }

  Ctx& ctx_;
  const ModelConfig& config_;
  SafetensorsReader reader_;
  std::set<std::string> used_;
};

/// Appends the blocks of one tensor of the folder, in chunks split among the threads.
void put_tensor(ThreadPool& threads, const ExportedTensor& t, ConstTensor values,
                const std::function<void(std::span<const std::byte>)>& append) {
  const auto& block = *gguf_block(t.type);
  const auto row_bytes = static_cast<std::uint64_t>(t.width()) / block.values * block.bytes;
  const std::int64_t chunk = std::max<std::int64_t>(1, kTogether / t.width());
  std::vector<std::byte> blocks;
  for (std::int64_t begin = 0; begin < t.rows(); begin += chunk) {
    const std::int64_t count = std::min(chunk, t.rows() - begin), part = (count + 15) / 16;
    blocks.resize(static_cast<std::size_t>(count) * row_bytes);
    threads.run((count + part - 1) / part, [&](std::int64_t task, int) {
      const std::int64_t first = task * part, rows = std::min(part, count - first);
      put_rows(t, values, begin + first,
               std::span(blocks).subspan(static_cast<std::size_t>(first) * row_bytes,
                                         static_cast<std::size_t>(rows) * row_bytes));
    });
    append(blocks);
  }
}

GgufTensorSource gguf_source_of(ThreadPool& threads, const Weights& weights, ExportedTensor tensor) {
  GgufTensorSource source{.name = tensor.weight.gguf, .type = tensor.type, .shape = tensor.weight.shape};
  source.produce = [&threads, &weights, t = std::move(tensor)](const auto& append) {
    std::vector<float> memory;
    for (const FolderTensor& from : t.from) {
      put_tensor(threads, t, weights.dense(from, t.weight, memory), append);
      weights.release(from.values);
    }
  };
  return source;
}

GgufTensorSource rope_source(std::vector<float> divisors) {
  return {
      .name = "rope_freqs.weight",
      .type = GgufType::f32,
      .shape = {static_cast<std::int64_t>(divisors.size())},
      .produce = [divisors = std::move(divisors)](const auto& append) { append(std::as_bytes(std::span(divisors))); }};
}

GgufType type_for(DType dtype) {
  return dtype == DType::f16 ? GgufType::f16 : dtype == DType::bf16 ? GgufType::bf16 : GgufType::f32;
}

ModelConfig config_of(const fs::path& folder) {
  const auto file = folder / "config.json";
  return parse_model_config(read_json(file), file.string());
}

Json read_generation_config(const fs::path& folder) {
  const auto file = folder / "generation_config.json";
  const Json json = path_exists(file) ? read_json(file) : Json::object();
  return json.is_object() ? json : Json::object();
}

std::string name_of_folder(const fs::path& folder) {
  const auto path = absolute_path(folder);
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

GgufMetadata metadata_of(const GgufExportOptions& options, const ModelConfig& config, GgufExportReport& report) {
  const auto tokenizer = load_tokenizer(options.model);
  const auto vocabulary = gguf_vocabulary({options.model, *tokenizer, config.vocab_size});
  report.notes = vocabulary.notes;
  const auto wanted = options.type.value_or(type_for(config.dtype));
  GgufMetadata metadata;
  metadata.put_text("general.architecture", config.family->gguf.architecture);
  metadata.put_text("general.type", "model");
  metadata.put_text("general.name", name_of_folder(options.name.empty() ? options.model : options.name));
  metadata.put_text(kGgufWrittenBy, "qtrain export");
  metadata.put_integer("general.file_type", gguf_file_type(wanted));
  if (is_quantized(wanted)) metadata.put_integer("general.quantization_version", 2);
  put_model(metadata, config, report.notes);
  put_vocabulary(metadata, vocabulary);
  put_special_tokens(metadata, {*tokenizer, config, read_generation_config(options.model)}, report.notes);
  put_templates(metadata, options.model);
  return metadata;
}

}  // namespace

GgufType gguf_export_type(std::string_view name) {
  for (const auto& t : kTypes)
    if (t.name == name) return t.type;
  fail(ErrorKind::usage, {.cause = fmt::format("weights cannot be exported as \"{}\"", name),
                          .remedy = "choose f32, f16, bf16, q8_0, q4_0 or q4_k"});
}

std::uint32_t gguf_file_type(GgufType type) {
  return std::find_if(std::begin(kTypes), std::end(kTypes), [&](auto& t) { return t.type == type; })->file_type;
}

GgufType gguf_type_of_model(const std::filesystem::path& folder) {
  return type_for(config_of(folder).dtype);
}

GgufExportReport export_gguf(Ctx& ctx, const GgufExportOptions& options) {
  ModelConfig config = config_of(options.model);
  if (untie_by_weights(config, options.model) && options.log) warn_of_untied(*options.log, options.model);
  require_expressible(config, (options.model / "config.json").string());
  const auto wanted = options.type.value_or(gguf_type_of_model(options.model));
  GgufExportReport report;
  const auto metadata = metadata_of(options, config, report);
  Weights weights(ctx, options.model, config);
  std::vector<GgufTensorSource> sources;
  if (auto divisors = rope_divisors(config); !divisors.empty()) sources.push_back(rope_source(std::move(divisors)));
  for (const auto& weight : gguf_layout(config))
    sources.push_back(gguf_source_of(ctx.pool(), weights, weights.take(weight, type_of_weight(weight, wanted))));
  weights.check_all_taken();
  for (const auto& s : sources) ++report.tensors[s.type];
  StoppableJob job(options.log, {.unit = "exporting", .total = bytes_of(sources), .counted = false});
  report.file = write_gguf({options.output, options.name_now}, metadata, watched(std::move(sources), job));
  return report;
}

}  // namespace qtrain
