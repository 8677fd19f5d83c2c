#include "kernels/adamw.h"

#include <algorithm>
#include <cmath>

#include "core/transfer.h"
#include "kernels/reduce.h"
#include "optim/optimizer.h"

namespace qtrain {
namespace {

const std::string kFirst = "exp_avg.", kSecond = "exp_avg_sq.";  // moments

class AdamW final : public Optimizer {
 public:
  AdamW(Ctx& ctx, std::vector<Param*> params, const AdamWOptions& options)
      : Optimizer(ctx.device()), options_(options), inputs_(ctx.device(), 64) {
    declare_adamw_state(state_, params);
    for (Param* p : params)
      slots_.push_back({p, state_.find(kFirst + p->spec.name), state_.find(kSecond + p->spec.name)});
  }

  void step(Ctx& ctx, const UpdateInput& input) override {
    ++updates_;
    const auto t = static_cast<double>(updates_);
    const double values[] = {input.learning_rate, input.grad_scale, 1 - std::pow(options_.beta1, t),
                             1 - std::pow(options_.beta2, t)};
    const ConstTensor control = inputs_.put(std::span<const double>(values));
    inputs_.send(ctx);
    for (const Slot& s : slots_)
      ops::adamw(ctx, {.param = s.param->value,
                       .m = s.m->value,
                       .v = s.v->value,
                       .grad = s.param->grad,
                       .control = control,
                       .beta1 = options_.beta1,
                       .beta2 = options_.beta2,
                       .eps = options_.eps,
                       .decay = s.param->spec.decay == Decay::yes ? options_.weight_decay : 0});
  }

 private:
  struct Slot {
    Param *param, *m, *v;
  };
  AdamWOptions options_;
  std::vector<Slot> slots_;
  Mailbox inputs_;
};

}  // namespace

void declare_adamw_state(ParamStore& state, std::span<Param* const> params) {
  for (const Param* p : params)
    for (const std::string& prefix : {kFirst, kSecond})
      state.declare({.name = prefix + p->spec.name, .shape = p->spec.shape, .dtype = p->spec.dtype});
}

std::unique_ptr<Optimizer> make_adamw(Ctx& ctx, std::vector<Param*> params, const AdamWOptions& options) {
  return std::make_unique<AdamW>(ctx, std::move(params), options);
}

void add_squares(Ctx& ctx, std::span<Param* const> params, Tensor total) {
  for (const Param* p : params) ops::sum_squares(ctx, {.out = accumulate(total), .x = p->grad});
}

double global_grad_norm(Ctx& ctx, std::span<Param* const> params) {
  DeviceNumbers total(ctx.device(), 1);
  total.clear(ctx);
  add_squares(ctx, params, total[0]);
  return std::sqrt(total.read(ctx).front());
}

double clip_coefficient(double norm, double max_norm) {
  return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
}

}  // namespace qtrain
