#include "train/step/step.h"

#include <cmath>

#include "core/timeline.h"

namespace qtrain {
namespace {

// The loss of the routers of a model that has it.
RouterLossRun router_loss(const ModelConfig& model, Tensor sum, ConstTensor scale) {
  if (!model.is_balanced()) return {};
  return {.sum = accumulate(sum), .coefficient = model.experts->balance_coefficient, .scale = scale};
}

// Parameters whose gradients are those of every rank.
std::span<Param* const> whole_ones(const Transformer& model, const std::vector<Param*>& trained) {
  if (model.options().sharding.divides_trained()) return {};
  return trained;
}

std::unique_ptr<DividedModel> divided_model(const TrainStep::Parts& parts, const TrainStep::Options& options) {
  if (!parts.model.options().sharding.divides_trained()) return {};
  check(parts.shard_ranks, "a divided model without ranks that divide it");
  return std::make_unique<DividedModel>(parts.model, *parts.shard_ranks, options.reduction);
}

Sizes sizes_for(Device device) {
  return device.kind == DeviceKind::cuda ? Sizes::classes : Sizes::exact;
}

}  // namespace

TrainStep::TrainStep(Ctx& ctx, const Parts& parts, const Options& options)
    : ctx_(ctx),
      model_(parts.model),
      optimizer_(parts.optimizer),
      ranks_(parts.ranks),
      trained_(model_.trained()),
      feed_(ctx.device(),
            {.max_tokens = options.max_tokens, .sizes = sizes_for(ctx.device()), .share = model_.options().context}),
      sums_(ctx.device(), kSums),
      reducer_(ranks_, options.reduction, whole_ones(model_, trained_), sums_.all()),
      divided_(divided_model(parts, options)),
      squares_(divided_ ? divided_->group() : ranks_,
               {.device = ctx.device(),
                .order = options.reduction.order,
                .divided = model_.options().sharding.divides_trained(),
                .replicas = divided_ ? &parts.shard_ranks->replicas() : nullptr},
               trained_),
      graphs_(ctx.device().kind == DeviceKind::cuda ? options.graphs : 0) {
  if (divided_) units_.emplace(model_, *divided_, graphs_);
  if (!divided_ && options.reduction.beside) units_.emplace(model_, reducer_, graphs_);
}

void TrainStep::begin(std::int64_t micro_batches) {
  reducer_.begin_step(micro_batches);
  if (divided_) divided_->begin_step(micro_batches);
  sums_.clear(ctx_);
  model_.weights().zero_grads(ctx_);
  model_.adapter().zero_grads(ctx_);
}

void TrainStep::add(const Batch& batch, const MicroStep& step) {
  const DeviceBatch sent = feed_.send(ctx_, batch, step);
  model_.prepare(ctx_, sent.tokens.longest);
  GraphCache::Key key = sent.sizes();
  if (units_) key.push_back(units_->exchanges_gradients() ? 1 : 0);
  graphs_.run(ctx_.stream(), "micro-step", key, [&] {
    model_.forward(ctx_, sent.tokens,
                   {.pass = Pass::train,
                    .loss_sum = accumulate(sums_[kLoss]),
                    .scale = sent.scale,
                    .dropout_seed = sent.dropout_seed,
                    .router_loss = router_loss(model_.config(), sums_[kRouter], sent.router_scale)});
    model_.backward(ctx_, sent.tokens);
  });
}

void TrainStep::end_micro_batch() {
  const timeline::Span span("add gradients of micro-batch");
  reducer_.end_micro_batch(ctx_);
  if (divided_) divided_->end_micro_batch(ctx_);
}

TrainStep::Sums TrainStep::finish(const UpdateInput& input) {
  {
    const timeline::Span span("add gradients");
    if (divided_) divided_->finish_step(ctx_);
    reducer_.finish(ctx_);  // on the stream of the context: behind all that was exchanged beside it
  }
  const timeline::Span span("update");
  optimizer_.send(ctx_, input);
  if (divided_) squares_.add(ctx_, sums_[kSquares]);
  graphs_.run(ctx_.stream(), "update", {}, [&] {
    if (!divided_) squares_.add(ctx_, sums_[kSquares]);
    optimizer_.update(ctx_, sums_.all().slice(kLoss, 2));
    if (divided_) graphs_.between([this] { divided_->finish_update(ctx_); });
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
  const bool finite = std::isfinite(sums_.read(ctx_)[kSquares]);
  return divided_ ? !any_rank(ctx_, ranks_, !finite) : finite;
}

}  // namespace qtrain
