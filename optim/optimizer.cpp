#include "optim/optimizer.h"

#include <algorithm>

#include "kernels/clip.h"
#include "kernels/reduce.h"

namespace qtrain {
namespace {

constexpr int kFactors = 2;
constexpr std::size_t kLimitBytes = Optimizer::kDeviceBytes - kFactors * sizeof(double);

std::vector<double> rates_of(std::span<Param* const> params) {
  std::vector<double> rates;
  for (const Param* p : params) rates.push_back(p->spec.learning_rate);
  std::sort(rates.begin(), rates.end());
  rates.erase(std::unique(rates.begin(), rates.end()), rates.end());
  return rates;
}

}  // namespace

Optimizer::Optimizer(Ctx& ctx, std::unique_ptr<UpdateRule> rule, std::vector<Param*> params, Placement placement)
    : rule_(std::move(rule)),
      params_(std::move(params)),
      state_(*rule_, params_, {ctx.device(), placement}),
      inputs_(ctx.device(), kLimitBytes + rates_of(params_).size() * kRateBytes),
      factor_(ctx.device(), kFactors),
      rates_(rates_of(params_)),
      controls_(rates_.size()) {
  for (const Param* p : params_)
    rate_of_.push_back(
        static_cast<std::size_t>(std::find(rates_.begin(), rates_.end(), p->spec.learning_rate) - rates_.begin()));
}

void Optimizer::allocate(Ctx& ctx) {
  state_.store().allocate();
  const bool hosted = state_.store().values().placement() == Placement::pinned;
  if (hosted && state_.store().values().planned() > 0)
    offload_ = std::make_unique<StateOffload>(ctx.device(), state_.pieces(rule_->cut()));
  else
    whole_ = state_.pieces(Cut::never);
  if (const std::size_t bytes = rule_->work_bytes(params_); bytes > 0) {
    work_ = DeviceMemory(ctx.device(), bytes, "work of the optimizer");
    rule_->prepare(ctx, {work_.data(), DType::u8, {static_cast<std::int64_t>(bytes)}, ctx.device()});
  }
}

void Optimizer::send(Ctx& ctx, const UpdateInput& input) {
  const double limits[] = {input.max_grad_norm, input.loss_scale};
  for (std::size_t i = 0; i < rates_.size(); ++i)
    controls_[i] = inputs_.put(std::span<const double>(rule_->control(input.learning_rate * rates_[i], updates() + 1)));
  limits_ = inputs_.put(std::span<const double>(limits));
  inputs_.send(ctx);
}

void Optimizer::update(Ctx& ctx, ConstTensor sums) {
  ops::clip(ctx, {.factor = factor_.all(), .sums = sums, .limits = limits_});
  if (offload_) return offload_->run(ctx, [&](const StatePiece& piece) { update_part(ctx, piece); });
  for (const StatePiece& piece : whole_) update_part(ctx, piece);
}

void Optimizer::update_part(Ctx& ctx, const StatePiece& piece) {
  const Param& p = *params_[piece.param];
  const std::int64_t n = p.value.numel();
  const bool whole = piece.count == n;
  const auto part = [&](Tensor t) { return whole ? t : t.reshaped({n}).slice(piece.begin, piece.count); };
  rule_->update(ctx, {.spec = p.spec,
                      .param = part(p.value),
                      .grad = part(p.grad),
                      .begin = piece.begin,
                      .state = piece.state,
                      .control = controls_[rate_of_[piece.param]],
                      .factor = factor_.all()});
}

OptimizerMemory optimizer_memory(const UpdateRule& rule, std::span<Param* const> params, Device device) {
  OptimizerState here(rule, params, {device, Placement::device}), there(rule, params, {device, Placement::pinned});
  return {.state = here.store().values().planned(),
          .pinned = there.store().values().planned(),
          .pieces = StateOffload::bytes(there.pieces(rule.cut())),
          .other = Optimizer::kDeviceBytes + rates_of(params).size() * Optimizer::kRateBytes + rule.work_bytes(params)};
}

void add_squares(Ctx& ctx, std::span<Param* const> params, Tensor total) {
  for (const Param* p : params) ops::sum_squares(ctx, {.out = accumulate(total), .x = p->grad});
}

}  // namespace qtrain
