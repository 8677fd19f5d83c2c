#include "train/step/step.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/timeline.h"
#include "model/first_gradients.h"

namespace qtrain {
namespace {

// Router loss settings for models that have one.
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
      runner_(parts.runner),
      model_(runner_.model()),
      optimizer_(parts.optimizer),
      ranks_(parts.ranks.all()),
      trained_(model_.trained()),
      feed_(ctx.device(), {.max_tokens = options.max_tokens,
                           .sizes = sizes_for(ctx.device()),
                           .share = model_.options().context,
                           .noise = options.noise}),
      sums_(ctx.device(), kSums),
      rank_sums_(ranks_, options.reduction.order, sums_.all()),
      exchange_(parts.ranks, options.reduction, model_.params().stores()),
      squares_(parts.ranks, ctx.device(), options.reduction.order, trained_),
      graphs_(ctx.device().kind == DeviceKind::cuda ? options.graphs : 0),
      loss_(options.loss) {
  if (exchange_.divides() || options.reduction.beside) units_.emplace(runner_, exchange_, graphs_);
  const OperandCopies& copies = runner_.copies().operands();
  // Where ranks update parts, the weights are complete only after an exchange.
  if (!exchange_.divides())
    optimizer_.write_copies([&](const Param& p) { return copies.has(p) ? copies.of(p) : Tensor{}; });
  std::ranges::copy_if(copies.trained(), std::back_inserter(converted_),
                       [&](const Param* p) { return !optimizer_.writes_copy(*p); });
}

void TrainStep::begin(std::int64_t micro_batches) {
  exchange_.begin_step(micro_batches);
  sums_.clear(ctx_);
  if (model_.options().sharding.divides_trained()) return zero_gradients();
  zero_added_gradients(ctx_, model_.params());
  gradients_ = GradientSum::first;
}

void TrainStep::zero_gradients() {
  model_.weights().zero_grads(ctx_);
  model_.adapter().zero_grads(ctx_);
  gradients_ = GradientSum::further;
}

// Other ranks may already add their gradients to those of this rank.
void TrainStep::skip() {
  if (gradients_ == GradientSum::first) zero_gradients();
  runner_.follow(ctx_, Pass::train);
}

void TrainStep::add(const Batch& batch, const MicroStep& step) {
  const DeviceBatch sent = feed_.send(ctx_, batch, step);
  runner_.prepare(ctx_, sent.tokens.longest);
  GraphCache::Key key = sent.sizes();
  key.push_back(gradients_ == GradientSum::first ? 1 : 0);
  if (units_) key.push_back(units_->exchanges_gradients() ? 1 : 0);
  graphs_.run(ctx_.stream(), "micro-step", key, [&] {
    runner_.forward(ctx_, sent.tokens,
                    {.pass = Pass::train,
                     .gradients = gradients_,
                     .loss = loss_,
                     .loss_sum = accumulate(sums_[kLoss]),
                     .scale = sent.scale,
                     .dropout_seed = sent.dropout_seed,
                     .noise = sent.noise,
                     .router_loss = router_loss(model_.config(), sums_[kRouter], sent.router_scale)});
    runner_.backward(ctx_, sent.tokens);
  });
  gradients_ = GradientSum::further;
}

void TrainStep::end_micro_batch() {
  const timeline::Span span("add gradients of micro-batch");
  exchange_.end_micro_batch(ctx_);
  rank_sums_.end_micro_batch(ctx_);
}

TrainStep::Sums TrainStep::finish(const UpdateInput& input) {
  if (gradients_ == GradientSum::first) zero_gradients();
  {
    const timeline::Span span("add gradients");
    exchange_.finish_step(ctx_);
    rank_sums_.finish_step(ctx_);  // on the context's stream, after all overlapped exchanges
  }
  const timeline::Span span("update");
  optimizer_.send(ctx_, input);
  // Exchanges between ranks are not recorded.
  const bool divides = exchange_.divides();
  if (divides) squares_.add(ctx_, sums_[kSquares]);
  graphs_.run(ctx_.stream(), "update", {}, [&] {
    if (!divides) squares_.add(ctx_, sums_[kSquares]);
    optimizer_.update(ctx_, sums_.all().slice(kLoss, 2));
    if (divides) graphs_.between([this] { exchange_.finish_update(ctx_); });
    runner_.copies().operands().convert(ctx_, converted_);
    runner_.measure_rows(ctx_);
  });
  const std::vector<double> sums = sums_.read(ctx_);
  return {.loss = sums[kLoss], .router = sums[kRouter], .squares = sums[kSquares]};
}

bool TrainStep::has_finite_gradient(Param& param) {
  Param* const one[] = {&param};
  sums_.clear(ctx_);
  add_squares(ctx_, one, sums_[kSquares]);
  const bool finite = std::isfinite(sums_.read(ctx_)[kSquares]);
  return exchange_.divides() ? !any_rank(ctx_, ranks_, !finite) : finite;
}

}  // namespace qtrain
