#include "convert/adapter_deltas.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/elementwise.h"
#include "kernels/gemm.h"

namespace qtrain {
namespace {

/// The names that the factors of a module have: of a linear layer A [r, in] and B [out, r] for its weight [out, in], of
/// an embedding A [r, rows] and B [width, r] for its weight [rows, width].
struct FactorNames {
  std::string_view a, b;
};
constexpr FactorNames kLinearFactors{".lora_A.weight", ".lora_B.weight"},
    kEmbeddingFactors{".lora_embedding_A", ".lora_embedding_B"};
constexpr std::string_view kMagnitude = ".lora_magnitude_vector";
// The embedding itself, which PEFT saves beside an adapter on it.
constexpr std::string_view kBaseLayer = ".base_layer.weight";

std::string module_of_weight(const std::string& weight) {
  return weight.substr(0, weight.rfind('.'));
}

// A matrix of a file in f32.
struct Matrix {
  std::vector<float> values;
  Shape shape;

  ConstTensor view() const { return view_of(std::span(values), shape); }
};
Matrix in_f32(Ctx& ctx, ConstTensor t) {
  Matrix m{.values = std::vector<float>(static_cast<std::size_t>(t.numel())), .shape = t.shape};
  ops::run_cpu(ctx, ops::Copy{.y = store(view_of(std::span(m.values), m.shape)), .x = t});
  return m;
}

// w [out, in] with rows of the lengths m [out].
void set_row_lengths(Tensor w, const Matrix& m) {
  const std::int64_t in = w.shape[1];
  for (std::int64_t row = 0; row < w.shape[0]; ++row) {
    float* const begin = w.as<float>() + row * in;
    double squares = 0;
    for (std::int64_t i = 0; i < in; ++i) squares += static_cast<double>(begin[i]) * begin[i];
    const double factor = squares > 0 ? m.values[static_cast<std::size_t>(row)] / std::sqrt(squares) : 0;
    for (std::int64_t i = 0; i < in; ++i) begin[i] = static_cast<float>(factor * begin[i]);
  }
}

}  // namespace

AdapterDeltas::AdapterDeltas(const std::filesystem::path& folder)
    : folder_(folder), config_(load_lora_config(folder)), reader_(folder) {
  if (!reader_.unusable().empty()) refuse(reader_.unusable().begin()->first, reader_.unusable().begin()->second);
  if (!config_.target_parameters.empty())
    fail(ErrorKind::input, {.cause = "an adapter on routers or experts (\"target_parameters\") cannot be merged yet",
                            .place = reader_.path().string(),
                            .remedy = "load it with PEFT, and merge_and_unload there"});
  for (const auto& [name, tensor] : reader_.tensors()) read_tensor(name, tensor);
  for (const auto& [weight, pair] : pairs_) check_pair(weight, pair);
}

void AdapterDeltas::refuse(const std::string& name, const std::string& why) const {
  fail(ErrorKind::input, {.cause = why, .place = fmt::format("{}: {}", reader_.path().string(), name)});
}

void AdapterDeltas::read_tensor(const std::string& name, ConstTensor tensor) {
  if (!name.starts_with(kPeftPrefix)) refuse(name, "is not part of a LoRA adapter");
  const std::string inner = name.substr(kPeftPrefix.size());
  for (const FactorNames& names : {kLinearFactors, kEmbeddingFactors}) {
    const bool embedding = names.a == kEmbeddingFactors.a;
    for (const bool first : {true, false}) {
      const std::string_view end = first ? names.a : names.b;
      if (!inner.ends_with(end)) continue;
      AdapterFactors& pair = pairs_[inner.substr(0, inner.size() - end.size()) + ".weight"];
      (first ? pair.a : pair.b) = tensor;
      pair.embedding = embedding;
      return;
    }
  }
  if (config_.dora && inner.ends_with(kMagnitude)) {
    pairs_[inner.substr(0, inner.size() - kMagnitude.size()) + ".weight"].magnitude = tensor;
    return;
  }
  if (inner.ends_with(kBaseLayer)) return;
  const std::string module = module_of_weight(inner);
  const bool tied_head = config_.ensure_weight_tying && module == kHeadName && is_saved(config_, kEmbeddingName);
  if (!is_saved(config_, module) && !tied_head) refuse(name, "is not part of a LoRA adapter");
  whole_[inner] = tensor;
  shapes_[inner] = tensor.shape;
}

void AdapterDeltas::check_pair(const std::string& weight, const AdapterFactors& pair) {
  const std::string module = module_of_weight(weight);
  if (!pair.a || !pair.b) refuse(module, fmt::format("has no {}", pair.a ? "lora_B" : "lora_A"));
  if (pair.a.shape.rank != 2 || pair.b.shape.rank != 2 || pair.a.shape[0] != pair.b.shape[1])
    refuse(module, fmt::format("lora_A {} and lora_B {} do not fit", to_string(pair.a.shape), to_string(pair.b.shape)));
  if (const std::int64_t rank = config_.rank_of(module); pair.a.shape[0] != rank)
    refuse(module, fmt::format("has rank {}, adapter_config.json says {}", pair.a.shape[0], rank));
  const std::int64_t in = pair.a.shape[1], out = pair.b.shape[0];
  if (config_.dora && (pair.embedding || !(pair.magnitude.shape == Shape{out})))
    refuse(module, fmt::format("has no lora_magnitude_vector of {} lengths, adapter_config.json says use_dora", out));
  shapes_[weight] = pair.embedding ? Shape{in, out} : Shape{out, in};
}

bool AdapterDeltas::targets(const std::string& weight) const {
  const std::string module = module_of_weight(weight);
  const bool adaptable = is_linear_layer(module) || module == kEmbeddingName || module == kHeadName;
  return is_saved(config_, module) || (weight.ends_with(".weight") && adaptable && is_target(config_, module));
}

void AdapterDeltas::add_to(Ctx& ctx, const std::string& weight, Tensor w, double factor) const {
  if (const auto found = whole_.find(weight); found != whole_.end()) {
    const Matrix saved = in_f32(ctx, found->second);
    const auto f = static_cast<float>(factor);
    std::transform(saved.values.begin(), saved.values.end(), w.as<float>(), w.as<float>(),
                   [f](float s, float sum) { return sum + f * s; });
    return;
  }
  const auto found = pairs_.find(weight);
  if (found == pairs_.end()) return;
  const bool embedding = found->second.embedding;
  const Matrix a = in_f32(ctx, found->second.a), b = in_f32(ctx, found->second.b);
  const auto transpose = embedding ? ops::Transpose::yes : ops::Transpose::no;
  ops::gemm(ctx, {.c = accumulate(w),
                  .a = embedding ? a.view() : b.view(),
                  .b = embedding ? b.view() : a.view(),
                  .transpose_a = transpose,
                  .transpose_b = transpose,
                  .alpha = factor * config_.scale_of(module_of_weight(weight))});
  if (found->second.magnitude) set_row_lengths(w, in_f32(ctx, found->second.magnitude));
}

}  // namespace qtrain
