#include "kernels/lion.h"

#include "optim/coded_state.h"
#include "optim/rules.h"

namespace qtrain {
namespace {

class Lion : public UpdateRule {
 public:
  explicit Lion(const OptimizerOptions& options) : UpdateRule(options.weight_decay), options_(options) {}

  std::vector<StateSpec> state_of(const ParamSpec& param) const override {
    return {{.name = "exp_avg", .shape = param.shape, .dtype = param.dtype}};
  }
  std::array<double, 4> hyperparameters(double learning_rate, std::int64_t) const override { return {learning_rate}; }
  std::int64_t block_size(const ParamSpec&) const override { return 1; }
  bool writes_copies() const override { return true; }
  void update(Ctx& ctx, const UpdatePart& part) const override {
    ops::lion(ctx, {.param = part.param,
                    .m = part.state[0],
                    .grad = part.grad,
                    .hyperparameters = part.hyperparameters,
                    .factor = part.factor,
                    .beta1 = options_.beta1,
                    .beta2 = options_.beta2,
                    .decay = decay(part.spec),
                    .copy = part.copy});
  }

 protected:
  OptimizerOptions options_;
};

class Lion8bit final : public Lion {
 public:
  using Lion::Lion;

  std::vector<StateSpec> state_of(const ParamSpec& param) const override {
    if (keeps_f32(param)) return Lion::state_of(param);
    std::vector<StateSpec> state;
    add_coded(state, "exp_avg", param);
    return state;
  }
  std::int64_t block_size(const ParamSpec& param) const override { return keeps_f32(param) ? 1 : ops::kCodeBlock; }
  void update(Ctx& ctx, const UpdatePart& part) const override {
    if (keeps_f32(part.spec)) return Lion::update(ctx, part);
    ops::lion_8bit(ctx, {.param = part.param,
                         .m = tables_.coded(part.state, 0),
                         .grad = part.grad,
                         .hyperparameters = part.hyperparameters,
                         .factor = part.factor,
                         .beta1 = options_.beta1,
                         .beta2 = options_.beta2,
                         .decay = decay(part.spec),
                         .copy = part.copy});
  }
  std::size_t work_bytes(std::span<Param* const>) const override { return tables_.bytes(); }
  void prepare(Ctx& ctx, Tensor work) override { tables_.write(ctx, work); }

 private:
  CodeTables tables_{{Signedness::with_sign}};
};

}  // namespace

std::unique_ptr<UpdateRule> make_lion(const OptimizerOptions& options, const OptimizerArguments&) {
  return std::make_unique<Lion>(options);
}
std::unique_ptr<UpdateRule> make_lion_8bit(const OptimizerOptions& options, const OptimizerArguments&) {
  return std::make_unique<Lion8bit>(options);
}

}  // namespace qtrain
