#include "kernels/adamw.h"

#include <cmath>

#include "core/transfer.h"
#include "kernels/clip.h"
#include "kernels/reduce.h"
#include "optim/optimizer.h"
#include "optim/state_offload.h"

namespace qtrain {
namespace {

const std::string kFirst = "exp_avg.", kSecond = "exp_avg_sq.";  // moments

class AdamW final : public Optimizer {
 public:
  AdamW(Ctx& ctx, std::vector<Param*> params, const AdamWOptions& options)
      : Optimizer(ctx.device(), options.state),
        device_(ctx.device()),
        options_(options),
        inputs_(ctx.device(), kInputBytes),
        factor_(ctx.device(), 2) {
    declare_adamw_state(state_, params);
    for (Param* p : params)
      slots_.push_back({p, state_.find(kFirst + p->spec.name), state_.find(kSecond + p->spec.name)});
  }

  void send(Ctx& ctx, const UpdateInput& input) override {
    const auto t = static_cast<double>(updates() + 1);
    const double control[] = {input.learning_rate, 1 - std::pow(options_.beta1, t), 1 - std::pow(options_.beta2, t)};
    const double limits[] = {input.max_grad_norm, input.loss_scale};
    control_ = inputs_.put(std::span<const double>(control));
    limits_ = inputs_.put(std::span<const double>(limits));
    inputs_.send(ctx);
  }

  void update(Ctx& ctx, ConstTensor sums) override {
    ops::clip(ctx, {.factor = factor_.all(), .sums = sums, .limits = limits_});
    if (offload_) return offload_->run(ctx, [&](const StateOffload::Piece& p) { update_part(ctx, slots_[p.pair], p); });
    for (std::size_t i = 0; i < slots_.size(); ++i)
      update_part(ctx, slots_[i],
                  {.pair = i, .begin = 0, .moments = {flat(slots_[i].m->value), flat(slots_[i].v->value)}});
  }

  void allocate() override {
    Optimizer::allocate();
    if (options_.state == Placement::pinned) offload_ = std::make_unique<StateOffload>(device_, state_);
  }

 private:
  struct Slot {
    Param *param, *m, *v;
  };

  static Tensor flat(Tensor t) { return t.reshaped({t.numel()}); }
  void update_part(Ctx& ctx, const Slot& s, const StateOffload::Piece& piece) {
    const std::int64_t count = piece.moments.first.numel();
    ops::adamw(ctx, {.param = flat(s.param->value).slice(piece.begin, count),
                     .m = piece.moments.first,
                     .v = piece.moments.second,
                     .grad = flat(s.param->grad).slice(piece.begin, count),
                     .control = control_,
                     .factor = factor_.all(),
                     .beta1 = options_.beta1,
                     .beta2 = options_.beta2,
                     .eps = options_.eps,
                     .decay = s.param->spec.decay == Decay::yes ? options_.weight_decay : 0});
  }

  Device device_;
  AdamWOptions options_;
  std::vector<Slot> slots_;
  std::unique_ptr<StateOffload> offload_;  ///< where the state is on the host
  static constexpr std::size_t kInputBytes = 128;
  Mailbox inputs_;
  DeviceNumbers factor_;
  ConstTensor control_, limits_;  ///< what was sent last
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

}  // namespace qtrain
