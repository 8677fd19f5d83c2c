#include "train/step.h"

#include <cmath>

namespace qtrain {
namespace {

// The loss of the routers of a model that has it.
RouterLossRun router_loss(const ModelConfig& model, Tensor sum, ConstTensor scale) {
  if (!model.is_balanced()) return {};
  return {.sum = accumulate(sum), .coefficient = model.experts->balance_coefficient, .scale = scale};
}

Sizes sizes_for(Device device) {
  return device.kind == DeviceKind::cuda ? Sizes::classes : Sizes::exact;
}

}  // namespace

TrainStep::TrainStep(Ctx& ctx, const Parts& parts, const Options& options)
    : ctx_(ctx),
      model_(parts.model),
      optimizer_(parts.optimizer),
      trained_(model_.trained()),
      feed_(ctx.device(), options.max_tokens, sizes_for(ctx.device())),
      sums_(ctx.device(), kSums),
      reducer_(parts.ranks, options.reduction, trained_, sums_.all()),
      graphs_(ctx.device().kind == DeviceKind::cuda ? options.graphs : 0) {}

void TrainStep::begin() {
  sums_.clear(ctx_);
  model_.weights().zero_grads(ctx_);
  model_.adapter().zero_grads(ctx_);
}

void TrainStep::add(const Batch& batch, const MicroStep& step) {
  const DeviceBatch sent = feed_.send(ctx_, batch, step);
  model_.prepare(ctx_, sent.tokens.longest);
  graphs_.run(ctx_.stream(), "micro-step", sent.sizes(), [&] {
    model_.forward(ctx_, sent.tokens,
                   {.pass = Pass::train,
                    .loss_sum = accumulate(sums_[kLoss]),
                    .scale = sent.scale,
                    .dropout_seed = sent.dropout_seed,
                    .router_loss = router_loss(model_.config(), sums_[kRouter], sent.router_scale)});
    model_.backward(ctx_, sent.tokens);
  });
}

TrainStep::Sums TrainStep::finish(const UpdateInput& input) {
  reducer_.finish(ctx_);
  optimizer_.send(ctx_, input);
  graphs_.run(ctx_.stream(), "update", {}, [&] {
    add_squares(ctx_, trained_, sums_[kSquares]);
    optimizer_.update(ctx_, sums_.all().slice(kLoss, 2));
    model_.refresh_operand_copies(ctx_);
    model_.measure_rows(ctx_);
  });
  const std::vector<double> sums = sums_.read(ctx_);
  return {.loss = sums[kLoss], .router = sums[kRouter], .squares = sums[kSquares]};
}

bool TrainStep::has_finite_gradient(Param& param) {
  Param* const one[] = {&param};
  sums_.clear(ctx_);
  add_squares(ctx_, one, sums_[kSquares]);
  return std::isfinite(sums_.read(ctx_)[kSquares]);
}

}  // namespace qtrain
