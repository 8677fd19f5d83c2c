#pragma once
#include <memory>

#include "optim/table.h"

/// Creates the rules of the table; `arguments` have been checked with OptimizerArguments::allow.
namespace qtrain {

inline constexpr std::string_view kStochasticRounding = "stochastic_rounding";

/// State: exp_avg and exp_avg_sq, in the parameter's dtype. Argument: stochastic_rounding, for parameters in bf16.
std::unique_ptr<UpdateRule> make_adamw(const OptimizerOptions& options, const OptimizerArguments& arguments);
/// Likewise in 8 bits, with exp_avg_absmax and exp_avg_sq_absmax, except for parameters with keeps_f32.
std::unique_ptr<UpdateRule> make_adamw_8bit(const OptimizerOptions& options, const OptimizerArguments& arguments);
/// State: exp_avg, and in 8 bits also exp_avg_absmax.
std::unique_ptr<UpdateRule> make_lion(const OptimizerOptions& options, const OptimizerArguments& arguments);
std::unique_ptr<UpdateRule> make_lion_8bit(const OptimizerOptions& options, const OptimizerArguments& arguments);
/// State: momentum_buffer if there is momentum. Arguments: momentum, dampening, nesterov.
std::unique_ptr<UpdateRule> make_sgd(const OptimizerOptions& options, const OptimizerArguments& arguments);
/// State: exp_avg_sq_row and exp_avg_sq_col for matrices, exp_avg_sq for vectors.
std::unique_ptr<UpdateRule> make_adafactor(const OptimizerOptions& options, const OptimizerArguments& arguments);
/// State: momentum_buffer for matrices inside the model; AdamW for everything else. Arguments: momentum, nesterov,
/// ns_steps, adjust_lr_fn.
std::unique_ptr<UpdateRule> make_muon(const OptimizerOptions& options, const OptimizerArguments& arguments);

}  // namespace qtrain
