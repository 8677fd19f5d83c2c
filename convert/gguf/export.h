#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/context.h"
#include "core/formats/gguf.h"
#include "core/log.h"

namespace qtrain {

struct GgufExportOptions {
  std::filesystem::path model, output;
  /// f32, f16, bf16, q8_0, q4_0 or q4_k; default: the data type of the weights.
  std::optional<GgufType> type = {};
  std::filesystem::path name = {};  ///< folder that gives general.name its value; default: `model`
  Log* log = nullptr;               ///< shows the progress, may be null
  /// The name that the finished file gets (SlowResult). By default that of `output`.
  std::function<std::filesystem::path(const std::filesystem::path& file)> name_now = {};
};

struct GgufExportReport {
  std::map<GgufType, std::int64_t> tensors;  ///< number of tensors by type
  std::filesystem::path file = {};           ///< where the result is
  std::vector<std::string> notes;            ///< what the file cannot express, or what readers do differently
};

/// The type with a name such as "q4_k". Throws ErrorKind::usage for a type that cannot be exported.
GgufType gguf_export_type(std::string_view name);

/// The default export type of a model folder.
GgufType gguf_type_of_model(const std::filesystem::path& folder);
/// llama.cpp's general.file_type for files whose weights are mostly of this type.
std::uint32_t gguf_file_type(GgufType type);

/// Writes a model folder as one GGUF file that llama.cpp loads: weights, hyperparameters, tokenizer and chat templates.
/// Matrices quantized by bitsandbytes are dequantized first. Vectors stay f32. If rows are not whole blocks, q4_k falls
/// back to Q5_0, and every quantized type to F16; embedding and head are Q8_0 with q4_0 and q4_k. `ctx` must be on the
/// processor. Throws ErrorKind::input for models, tokenizers and weights that the format cannot hold, ErrorKind::disk.
GgufExportReport export_gguf(Ctx& ctx, const GgufExportOptions& options);

}  // namespace qtrain
