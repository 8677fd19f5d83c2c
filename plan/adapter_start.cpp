#include "plan/adapter_start.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/plural.h"
#include "core/progress.h"

namespace qtrain {
namespace {

constexpr double kMultiplications = 4e9;  // of a thread in a second, in double precision
constexpr double kWorthSaying = 10;       // seconds

/// Multiplications for the factors of a matrix, as docs/semantics.md says.
double multiplications(const LoraInit& init, const LinearParams& layer) {
  const auto m = static_cast<double>(layer.shape()[0]), n = static_cast<double>(layer.shape()[1]);
  const auto r = static_cast<double>(layer.rank());
  if (init.kind == LoraInit::Kind::olora) return 2 * m * n * r;
  if (init.iterations) return 4 * m * n * r * (*init.iterations + 1);
  return std::min(m, n) * std::min(m, n) * (m + n);
}

}  // namespace

std::optional<std::string> remark_on_start(const Transformer& model, int threads) {
  const TransformerOptions& options = model.options();
  if (!options.lora || !options.lora->init.reads_base()) return {};
  const LoraInit& init = options.lora->init;
  double all = 0;
  std::int64_t count = 0;
  const auto add = [&](const LinearParams& layer) {
    if (!layer.a) return;
    all += multiplications(init, layer);
    ++count;
  };
  for (const LayerParams& layer : model.params().layers())
    for (const LinearParams& linear : layer.linears) add(linear);
  add(model.params().head());
  const double seconds = all / (kMultiplications * threads);
  if (seconds < kWorthSaying) return {};
  const bool exact = init.kind != LoraInit::Kind::olora && !init.iterations;
  return fmt::format(
      "init_lora_weights {} decomposes {} on the processor before the first step, which takes about {} on {}{}",
      init.json().dump(), counted(count, "weight"), format_duration(seconds), counted(threads, "thread"),
      exact && init.kind == LoraInit::Kind::pissa ? "; pissa_niter_4 is much faster" : "");
}

}  // namespace qtrain
