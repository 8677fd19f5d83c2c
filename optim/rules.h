#pragma once
#include <memory>

#include "optim/table.h"

/// One function for each rule of the table; `arguments` are known to be those that it takes.
namespace qtrain {

inline constexpr std::string_view kStochasticRounding = "stochastic_rounding";

/// exp_avg and exp_avg_sq, in the parameter's dtype. Argument: stochastic_rounding, for parameters in bf16.
std::unique_ptr<UpdateRule> make_adamw(const OptimizerOptions& options, const OptimizerArguments& arguments);
/// The same in 8 bits with exp_avg_absmax and exp_avg_sq_absmax, but for what `keeps_f32`.
std::unique_ptr<UpdateRule> make_adamw_8bit(const OptimizerOptions& options, const OptimizerArguments& arguments);
/// exp_avg, and for the second exp_avg_absmax.
std::unique_ptr<UpdateRule> make_lion(const OptimizerOptions& options, const OptimizerArguments& arguments);
std::unique_ptr<UpdateRule> make_lion_8bit(const OptimizerOptions& options, const OptimizerArguments& arguments);
/// momentum_buffer, where there is momentum. Arguments: momentum, dampening, nesterov.
std::unique_ptr<UpdateRule> make_sgd(const OptimizerOptions& options, const OptimizerArguments& arguments);
/// exp_avg_sq_row and exp_avg_sq_col of matrices, exp_avg_sq of vectors.
std::unique_ptr<UpdateRule> make_adafactor(const OptimizerOptions& options, const OptimizerArguments& arguments);
/// momentum_buffer of matrices inside the model; AdamW for everything else. Arguments: momentum, nesterov, ns_steps,
/// adjust_lr_fn.
std::unique_ptr<UpdateRule> make_muon(const OptimizerOptions& options, const OptimizerArguments& arguments);

}  // namespace qtrain
