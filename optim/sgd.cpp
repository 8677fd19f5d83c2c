#include "kernels/sgd.h"

#include "core/error.h"
#include "optim/rules.h"

namespace qtrain {
namespace {

class Sgd final : public UpdateRule {
 public:
  Sgd(const OptimizerOptions& options, const OptimizerArguments& arguments)
      : UpdateRule(options.weight_decay),
        momentum_(arguments.number("momentum", 0)),
        dampening_(arguments.number("dampening", 0)),
        nesterov_(arguments.flag("nesterov", false) ? ops::Nesterov::yes : ops::Nesterov::no) {
    if (nesterov_ == ops::Nesterov::yes && (momentum_ == 0 || dampening_ != 0))
      fail(ErrorKind::usage, {.cause = "nesterov requires a momentum above 0 and no dampening",
                              .place = "optim_args",
                              .remedy = "for example \"momentum=0.9,nesterov=true\""});
  }

  std::vector<StateSpec> state_of(const ParamSpec& param) const override {
    if (momentum_ == 0) return {};
    return {{.name = "momentum_buffer", .shape = param.shape, .dtype = param.dtype}};
  }
  std::array<double, 4> hyperparameters(double learning_rate, std::int64_t t) const override {
    return {learning_rate, t == 1 ? 1 : 1 - dampening_};
  }
  std::int64_t block_size(const ParamSpec&) const override { return 1; }
  bool writes_copies() const override { return true; }
  void update(Ctx& ctx, const UpdatePart& part) const override {
    ops::sgd(ctx, {.param = part.param,
                   .momentum_buffer = part.state.empty() ? Tensor{} : part.state[0],
                   .grad = part.grad,
                   .hyperparameters = part.hyperparameters,
                   .factor = part.factor,
                   .momentum = momentum_,
                   .decay = decay(part.spec),
                   .nesterov = nesterov_,
                   .copy = part.copy});
  }

 private:
  double momentum_, dampening_;
  ops::Nesterov nesterov_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_sgd(const OptimizerOptions& options, const OptimizerArguments& arguments) {
  return std::make_unique<Sgd>(options, arguments);
}

}  // namespace qtrain
