#include "convert/gguf/import.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "convert/gguf/import_model.h"
#include "convert/stoppable_job.h"
#include "core/formats/json.h"
#include "core/formats/safetensors.h"
#include "core/os/file.h"
#include "quant/gguf_blocks.h"
#include "train/checkpoint/pending_model.h"

namespace qtrain {
namespace {

constexpr const char* kWriter = "qtrain import";
constexpr std::uint64_t kShardBytes = 5'000'000'000;
constexpr std::int64_t kRowsValues = 1 << 16;

/// Calls `use` with the values in Hugging Face order, some rows at a time.
template <class Use>
void for_rows(const ImportedTensor& tensor, Use&& use) {
  const auto& source = *tensor.source;
  const auto width = static_cast<std::size_t>(tensor.width());
  const auto& block = *gguf_block(source.type);
  const std::size_t row_bytes = width / block.values * block.bytes;
  const std::int64_t chunk = std::max<std::int64_t>(1, kRowsValues / tensor.width());
  const auto offset = static_cast<float>(tensor.offset);
  std::vector<float> values;
  for (std::int64_t begin = 0; begin < tensor.height(); begin += chunk) {
    const std::int64_t count = std::min(chunk, tensor.height() - begin);
    values.resize(static_cast<std::size_t>(count) * width);
    for (std::int64_t r = 0; r < count; ++r) {
      const auto at = static_cast<std::size_t>(tensor.first_row + tensor.rows.in_gguf(begin + r)) * row_bytes;
      dequantize_gguf(source.type, source.data.subspan(at, row_bytes),
                      std::span(values).subspan(static_cast<std::size_t>(r) * width, width));
    }
    if (offset != 0)
      for (float& x : values) x -= offset;
    throw_if_stopped();
    use(std::span<const float>(values));
  }
}

/// Whether values of type T reproduce those of the file exactly. If the file stores value + offset, small values have
/// already lost their last bits there.
template <class T>
bool holds_exactly(const ImportedTensor& tensor) {
  bool exact = true;
  const auto offset = static_cast<float>(tensor.offset);
  for_rows(tensor, [&](std::span<const float> values) {
    exact = exact && std::ranges::all_of(values, [offset](float x) {
              return static_cast<float>(T(x)) + offset == x + offset || std::isnan(x);
            });
  });
  return exact;
}

/// float16 or bfloat16 if one of them holds every value exactly, else float32.
DType exact_dtype(const std::vector<ImportedTensor>& tensors) {
  bool f16 = true, bf16 = true, has_bf16 = false;
  for (const auto& t : tensors) {
    const auto type = t.source->type;
    if (type != GgufType::f32 && type != GgufType::f16 && type != GgufType::bf16) return DType::f32;
    has_bf16 = has_bf16 || type == GgufType::bf16;
  }
  for (const auto& t : tensors) {
    const auto is = [&](GgufType type) { return t.source->type == type && t.offset == 0; };
    f16 = f16 && (is(GgufType::f16) || holds_exactly<F16>(t));
    bf16 = bf16 && (is(GgufType::bf16) || holds_exactly<Bf16>(t));
    if (!f16 && !bf16) return DType::f32;
  }
  return bf16 && (has_bf16 || !f16) ? DType::bf16 : DType::f16;
}

template <class T>
TensorSource converted(const ImportedTensor& tensor) {
  TensorSource out{.name = tensor.name, .dtype = dtype_of<T>};
  for (const auto extent : tensor.shape) out.shape.dims[static_cast<std::size_t>(out.shape.rank++)] = extent;
  out.produce = [tensor](const std::function<void(std::span<const std::byte>)>& append) {
    std::vector<T> narrow;
    for_rows(tensor, [&](std::span<const float> values) {
      narrow.assign(values.begin(), values.end());
      for (std::size_t i = 0; i < values.size(); ++i)
        if (std::isfinite(values[i]) && !std::isfinite(static_cast<float>(narrow[i])))
          fail(ErrorKind::usage, {.cause = fmt::format("{} of tensor {} is out of range for {}", values[i], tensor.name,
                                                       name_of(dtype_of<T>)),
                                  .remedy = "choose --dtype bfloat16 or float32"});
      append(std::as_bytes(std::span(narrow)));
    });
  };
  return out;
}

TensorSource converted(const ImportedTensor& tensor, DType dtype) {
  switch (dtype) {
    case DType::f32: return converted<float>(tensor);
    case DType::f16: return converted<F16>(tensor);
    case DType::bf16: return converted<Bf16>(tensor);
    default:
      fail(ErrorKind::usage, {.cause = fmt::format("weights cannot be written as {}", name_of(dtype)),
                              .remedy = "choose --dtype float32, float16 or bfloat16"});
  }
}

void write_json(const std::filesystem::path& file, const Json& json) {
  write_file(file, dump_json(json, 2) + "\n");
}

void write_tokenizer(const std::filesystem::path& folder, const TokenizerFiles& files) {
  write_json(folder / "tokenizer.json", files.tokenizer);
  write_json(folder / "tokenizer_config.json", files.config);
  write_json(folder / "special_tokens_map.json", files.special_tokens);
}

}  // namespace

ImportedParts import_gguf(const ImportOptions& options) {
  const GgufFile file(options.gguf);
  const auto tokenizer = gguf_tokenizer(file);
  if (file.tensors().empty()) {
    PendingModel output(options.output, kWriter);
    write_tokenizer(output.folder(), tokenizer);
    output.commit();
    return ImportedParts::tokenizer;
  }
  Json config = gguf_config(file);
  const ModelConfig model = gguf_model_config(file, config);
  if (tokenizer.tokens > model.vocab_size)
    refuse_gguf(file, fmt::format("the tokenizer has {} tokens, but the model only {} embeddings", tokenizer.tokens,
                                  model.vocab_size));
  const auto tensors = gguf_weights(file, model);
  for (const auto& t : tensors)
    if (!can_dequantize(t.source->type)) dequantize_gguf(t.source->type, {}, {});  // throws, naming the supported types
  const auto dtype = options.dtype ? *options.dtype : exact_dtype(tensors);
  std::vector<TensorSource> sources;
  sources.reserve(tensors.size());
  for (const auto& t : tensors) sources.push_back(converted(t, dtype));

  PendingModel output(options.output, kWriter);
  write_tokenizer(output.folder(), tokenizer);
  write_json(output.folder() / "generation_config.json", gguf_generation_config(file));
  StoppableJob job(options.log, {.unit = "importing", .total = bytes_of(sources), .counted = false});
  write_sharded(output.folder(), watched(std::move(sources), job), kShardBytes);
  config["torch_dtype"] = name_of(dtype);
  write_json(output.folder() / "config.json", config);
  output.commit();
  return ImportedParts::model;
}

}  // namespace qtrain
