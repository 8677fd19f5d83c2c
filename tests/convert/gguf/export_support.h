#pragma once
#include <fstream>

#include "convert/gguf/export.h"
#include "core/formats/gguf.h"
#include "quant/gguf_blocks.h"

/// Makes model folders from files of gguf-py, and exports them.
namespace qtrain::testing {

inline const std::filesystem::path kExportGoldens = QTRAIN_SOURCE_DIR "/tests/convert/goldens/gguf";

inline GgufExportReport exported(const std::filesystem::path& model, const std::filesystem::path& output,
                                 std::optional<GgufType> type = {}) {
  Ctx ctx({}, MatmulPrecision::storage, 2);
  return export_gguf(ctx, {.model = model, .output = output, .type = type});
}

inline std::vector<float> values_of(const GgufTensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.numel()));
  dequantize_gguf(tensor.type, tensor.data, values);
  return values;
}

inline void write_json(const std::filesystem::path& file, const Json& json) {
  std::ofstream(file) << dump_json(json);
}

}  // namespace qtrain::testing
