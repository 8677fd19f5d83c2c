#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "optim/arguments.h"
#include "optim/optimizer.h"

namespace qtrain {

/// Where the state of an optimizer lies: "paged" ones go to the host where the device has no room.
enum class Pages : std::uint8_t { never, where_needed };

struct OptimizerOptions {
  std::string name = "adamw_torch_fused";  ///< a value of `optim`
  std::string arguments = {};              ///< `optim_args`
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  std::uint64_t seed = 0;  ///< of stochastic rounding
};

/// A value of `optim`, as transformers names it (and two names that it had, and muon).
struct NamedOptimizer {
  std::string_view name;
  /// The rule: what differs only in how or where it is computed has the same. Empty: it is not here.
  std::string_view rule = {};
  Pages pages = Pages::never;
};
/// All names, those that are not here last.
std::span<const std::string_view> optimizer_names();
/// Those that are here.
std::vector<std::string_view> available_optimizers();
/// The same for messages: one name of each rule, and where the others are.
std::string_view optimizer_summary();
/// Null for an unknown name.
const NamedOptimizer* find_optimizer(std::string_view name);

/// Whether weights are to be bf16, without a more exact copy: AdamW with stochastic rounding.
bool trains_bf16(const OptimizerOptions& options);

/// Whether the rule itself multiplies in bf16: that of muon.
bool multiplies_bf16(const OptimizerOptions& options);

/// Errors: ErrorKind::usage, for a name that is not here (with those that are) and arguments that it does not take.
std::unique_ptr<UpdateRule> make_rule(const OptimizerOptions& options);

}  // namespace qtrain
