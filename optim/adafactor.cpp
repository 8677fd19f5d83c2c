#include "kernels/adafactor.h"

#include <cmath>

#include "optim/rules.h"

namespace qtrain {
namespace {

/// transformers.Adafactor as its Trainer configures it: scale_parameter and relative_step off, defaults for the rest.
class Adafactor final : public UpdateRule {
 public:
  explicit Adafactor(const OptimizerOptions& options) : UpdateRule(options.weight_decay) {}

  std::vector<StateSpec> state_of(const ParamSpec& param) const override {
    check(param.dtype == DType::f32, "adafactor: parameters are f32 vectors and matrices");
    if (param.shape.rank < 2) return {{.name = "exp_avg_sq", .shape = param.shape}};
    if (param.shape.rank == 3)
      return {{.name = "exp_avg_sq_row", .shape = {param.shape[0], param.shape[1]}},
              {.name = "exp_avg_sq_col", .shape = {param.shape[0], param.shape[2]}}};
    return {{.name = "exp_avg_sq_row", .shape = {param.shape[0]}},
            {.name = "exp_avg_sq_col", .shape = {param.shape[1]}}};
  }
  std::array<double, 4> hyperparameters(double learning_rate, std::int64_t t) const override {
    constexpr double kDecayRate = -0.8;
    return {learning_rate, 1 - std::pow(static_cast<double>(t), kDecayRate)};
  }
  // Each expert's matrix is updated separately, since files hold them separately.
  void update(Ctx& ctx, const UpdatePart& part) const override {
    each_matrix(part, [&](const UpdatePart& matrix) { update_matrix(ctx, matrix); });
  }
  Cut cut(const ParamSpec&) const override { return Cut::never; }

 private:
  void update_matrix(Ctx& ctx, const UpdatePart& part) const {
    const bool matrix = part.state.size() == 2;
    ops::adafactor(ctx, {.param = part.param,
                         .row = matrix ? part.state[0] : Tensor{},
                         .column = matrix ? part.state[1] : Tensor{},
                         .square = matrix ? Tensor{} : part.state[0],
                         .grad = part.grad,
                         .hyperparameters = part.hyperparameters,
                         .factor = part.factor,
                         .decay = decay(part.spec)});
  }
};

}  // namespace

std::unique_ptr<UpdateRule> make_adafactor(const OptimizerOptions& options, const OptimizerArguments&) {
  return std::make_unique<Adafactor>(options);
}

}  // namespace qtrain
