#include "train/merge/adapter_deltas.h"

#include <fmt/format.h>

#include <vector>

#include "kernels/elementwise.h"
#include "kernels/gemm.h"

namespace qtrain {
namespace {

constexpr std::string_view kPrefix = "base_model.model.", kA = ".lora_A.weight", kB = ".lora_B.weight";

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

}  // namespace

AdapterDeltas::AdapterDeltas(const std::filesystem::path& folder)
    : folder_(folder), config_(load_lora_config(folder)), reader_(folder) {
  const auto refuse = [&](const std::string& name, const std::string& why) {
    fail(ErrorKind::input, {.cause = why, .place = fmt::format("{}: {}", reader_.path().string(), name)});
  };
  for (const auto& [name, tensor] : reader_.tensors()) {
    const bool a = name.ends_with(kA), b = name.ends_with(kB);
    if (!name.starts_with(kPrefix) || !(a || b)) refuse(name, "is no part of a LoRA adapter of linear layers");
    Pair& pair = pairs_[name.substr(kPrefix.size(), name.size() - kPrefix.size() - kA.size())];
    (a ? pair.a : pair.b) = tensor;
  }
  if (!reader_.unusable().empty()) refuse(reader_.unusable().begin()->first, reader_.unusable().begin()->second);
  for (const auto& [module, pair] : pairs_) {
    if (!pair.a || !pair.b) refuse(module, fmt::format("has no {}", pair.a ? "lora_B" : "lora_A"));
    if (pair.a.shape.rank != 2 || pair.b.shape.rank != 2 || pair.a.shape[0] != pair.b.shape[1])
      refuse(module,
             fmt::format("lora_A {} and lora_B {} do not fit", to_string(pair.a.shape), to_string(pair.b.shape)));
    if (const std::int64_t rank = config_.rank_of(module); pair.a.shape[0] != rank)
      refuse(module, fmt::format("has rank {}, adapter_config.json says {}", pair.a.shape[0], rank));
  }
}

std::set<std::string> AdapterDeltas::modules() const {
  std::set<std::string> names;
  for (const auto& [module, pair] : pairs_) names.insert(module);
  return names;
}

void AdapterDeltas::require_fit(const std::string& module, const Shape& weight) const {
  const auto found = pairs_.find(module);
  if (found == pairs_.end()) return;
  const Shape changed{found->second.b.shape[0], found->second.a.shape[1]};
  if (!(weight == changed))
    fail(ErrorKind::input, {.cause = fmt::format("the adapter changes a weight of shape {}, the model's is {}",
                                                 to_string(changed), to_string(weight)),
                            .place = fmt::format("{}: {}", folder_.string(), module),
                            .remedy = "adapter and model must belong together"});
}

void AdapterDeltas::add_to(Ctx& ctx, const std::string& module, Tensor w, double factor) const {
  const auto found = pairs_.find(module);
  if (found == pairs_.end()) return;
  const Matrix a = in_f32(ctx, found->second.a), b = in_f32(ctx, found->second.b);
  ops::gemm(ctx, {.c = accumulate(w), .a = b.view(), .b = a.view(), .alpha = factor * config_.scale_of(module)});
}

}  // namespace qtrain
