#pragma once
#include <filesystem>
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
  /// f32, f16, bf16, q8_0, q4_0 or q4_k; without one the dtype of the weights.
  std::optional<GgufType> type = {};
  std::filesystem::path name = {};  ///< general.name is that of this folder; of `model` where it is empty
  Log* log = nullptr;               ///< where to show how far it is
};

struct GgufExportReport {
  std::map<GgufType, std::int64_t> tensors;  ///< number by type
  std::vector<std::string> notes;            ///< what the file cannot say or its readers do differently, for people
};

/// "q4_k"; ErrorKind::usage for a type that weights are not exported in.
GgufType gguf_export_type(std::string_view name);

/// The type that a model folder is exported in where nothing else is said.
GgufType gguf_type_of_model(const std::filesystem::path& folder);
/// llama.cpp's number of a mixture of weights in mostly this type.
std::uint32_t gguf_file_type(GgufType type);

/// Writes a model folder as one GGUF file that llama.cpp loads: weights tensor by tensor, hyper-parameters, tokenizer,
/// chat templates. Matrices that bitsandbytes quantized are exported as the values that they stand for. Vectors stay
/// f32. Quantized types fall back where rows are not whole blocks: q4_k to Q5_0, then all to F16; embedding and head
/// are Q8_0 under q4_0 and q4_k. Errors: ErrorKind::input for models, tokenizers and weights that the format cannot
/// hold, ErrorKind::disk. `ctx` is one of the processor.
GgufExportReport export_gguf(Ctx& ctx, const GgufExportOptions& options);

}  // namespace qtrain
