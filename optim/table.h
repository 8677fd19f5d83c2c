#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "optim/arguments.h"
#include "optim/optimizer.h"

namespace qtrain {

/// Where an optimizer keeps its state: "paged" ones move it to the host if the device has too little memory.
enum class Pages : std::uint8_t { never, where_needed };

struct OptimizerOptions {
  std::string name = "adamw_torch_fused";  ///< a value of `optim`
  std::string arguments = {};              ///< `optim_args`
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  std::uint64_t seed = 0;  ///< seed of stochastic rounding
};

/// A value of `optim`, named as in transformers (plus two older names of transformers, and muon).
struct NamedOptimizer {
  std::string_view name;
  /// The rule; optimizers that only differ in how or where they are computed share one. Empty: not available.
  std::string_view rule = {};
  Pages pages = Pages::never;
};
/// All names; those that are not available come last.
std::span<const std::string_view> optimizer_names();
/// Names that are available.
std::vector<std::string_view> available_optimizers();
/// For messages: one name per rule, and where to find the others.
std::string_view optimizer_summary();
/// Returns null for an unknown name.
const NamedOptimizer* find_optimizer(std::string_view name);

/// Whether weights are bf16 without a float32 master copy: AdamW with stochastic rounding.
bool trains_bf16(const OptimizerOptions& options);

/// Whether the rule itself runs bf16 GEMMs, as muon's does.
bool multiplies_bf16(const OptimizerOptions& options);

/// Throws ErrorKind::usage for a name that is not available (listing those that are) and for arguments that it does not
/// accept.
std::unique_ptr<UpdateRule> make_rule(const OptimizerOptions& options);

}  // namespace qtrain
