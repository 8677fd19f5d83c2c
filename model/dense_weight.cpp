#include "model/dense_weight.h"

#include <fmt/format.h>

#include <algorithm>

#include "quant/fp8.h"

namespace qtrain {

DenseWeight::DenseWeight(Ctx& ctx, const SafetensorsReader& reader, const std::string& name, const ModelConfig* config)
    : reader_(reader), file_(reader.at(name)) {
  if (file_.dtype != DType::f8_e4m3) return;
  if (!config || !config->fp8)
    fail(ErrorKind::input,
         {.cause = fmt::format("has dtype {}, but no quantization_config says how it is scaled", name_of(file_.dtype)),
          .place = fmt::format("{}: {}", reader.path().string(), name),
          .remedy = "use the files with 32- or 16-bit weights"});
  constexpr std::int64_t kRows = 64;  // per task
  const Fp8Matrix matrix = read_fp8(reader, name, *config->fp8);
  const std::int64_t rows = file_.shape[0];
  const DType dtype = expanded_dtype(*config);
  memory_.resize(static_cast<std::size_t>(file_.numel()) * size_of(dtype));
  const Tensor all{memory_.data(), dtype, file_.shape, {}};
  expanded_ = all;
  ctx.pool().run((rows + kRows - 1) / kRows, [&](std::int64_t task, int) {
    const std::int64_t first = task * kRows, count = std::min(kRows, rows - first);
    matrix.expand(first, all.slice(first, count));
  });
}

}  // namespace qtrain
