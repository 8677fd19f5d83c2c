#include "kernels/adamw.h"

#include <cmath>

#include "core/rng.h"
#include "optim/coded_state.h"
#include "optim/rules.h"

namespace qtrain {
namespace {

class AdamW : public UpdateRule {
 public:
  explicit AdamW(const OptimizerOptions& options) : UpdateRule(options.weight_decay), options_(options) {}

  std::vector<StateSpec> state_of(const ParamSpec& param) const override {
    return {{.name = "exp_avg", .shape = param.shape, .dtype = param.dtype},
            {.name = "exp_avg_sq", .shape = param.shape, .dtype = param.dtype}};
  }
  std::array<double, 4> hyperparameters(double learning_rate, std::int64_t t) const override {
    const auto steps = static_cast<double>(t);
    return {learning_rate, 1 - std::pow(options_.beta1, steps), 1 - std::pow(options_.beta2, steps), steps};
  }
  std::int64_t block_size(const ParamSpec&) const override { return 1; }
  bool writes_copies() const override { return true; }
  void update(Ctx& ctx, const UpdatePart& part) const override {
    ops::adamw(ctx, {.param = part.param,
                     .m = part.state[0],
                     .v = part.state[1],
                     .grad = part.grad,
                     .hyperparameters = part.hyperparameters,
                     .factor = part.factor,
                     .beta1 = options_.beta1,
                     .beta2 = options_.beta2,
                     .eps = options_.eps,
                     .decay = decay(part.spec),
                     .copy = part.copy});
  }

 protected:
  OptimizerOptions options_;
};

/// For parameters in bf16, the moments are in bf16 too.
class AdamWBf16 final : public AdamW {
 public:
  using AdamW::AdamW;

  /// 0: random numbers are indexed within one parameter, so parameters cannot be joined.
  std::int64_t block_size(const ParamSpec& param) const override { return param.dtype == DType::bf16 ? 0 : 1; }
  void update(Ctx& ctx, const UpdatePart& part) const override {
    if (part.spec.dtype != DType::bf16) return AdamW::update(ctx, part);
    ops::adamw_bf16(ctx, {.param = part.param,
                          .m = part.state[0],
                          .v = part.state[1],
                          .grad = part.grad,
                          .hyperparameters = part.hyperparameters,
                          .factor = part.factor,
                          .seed = options_.seed,
                          .stream = stream_of(part.spec.name),
                          .first = part.begin,
                          .beta1 = options_.beta1,
                          .beta2 = options_.beta2,
                          .eps = options_.eps,
                          .decay = decay(part.spec)});
  }
};

class AdamW8bit final : public AdamW {
 public:
  using AdamW::AdamW;

  std::vector<StateSpec> state_of(const ParamSpec& param) const override {
    if (keeps_f32(param)) return AdamW::state_of(param);
    std::vector<StateSpec> state;
    add_coded(state, "exp_avg", param);
    add_coded(state, "exp_avg_sq", param);
    return state;
  }
  std::int64_t block_size(const ParamSpec& param) const override { return keeps_f32(param) ? 1 : ops::kCodeBlock; }
  void update(Ctx& ctx, const UpdatePart& part) const override {
    if (keeps_f32(part.spec)) return AdamW::update(ctx, part);
    ops::adamw_8bit(ctx, {.param = part.param,
                          .m = tables_.coded(part.state, 0),
                          .v = tables_.coded(part.state, 1),
                          .grad = part.grad,
                          .hyperparameters = part.hyperparameters,
                          .factor = part.factor,
                          .beta1 = options_.beta1,
                          .beta2 = options_.beta2,
                          .eps = options_.eps,
                          .decay = decay(part.spec),
                          .copy = part.copy});
  }
  std::size_t work_bytes(std::span<Param* const>) const override { return tables_.bytes(); }
  void prepare(Ctx& ctx, Tensor work) override { tables_.write(ctx, work); }

 private:
  CodeTables tables_{{Signedness::with_sign, Signedness::without_sign}};
};

}  // namespace

std::unique_ptr<UpdateRule> make_adamw(const OptimizerOptions& options, const OptimizerArguments& arguments) {
  if (arguments.flag(kStochasticRounding, false)) return std::make_unique<AdamWBf16>(options);
  return std::make_unique<AdamW>(options);
}
std::unique_ptr<UpdateRule> make_adamw_8bit(const OptimizerOptions& options, const OptimizerArguments&) {
  return std::make_unique<AdamW8bit>(options);
}

}  // namespace qtrain
