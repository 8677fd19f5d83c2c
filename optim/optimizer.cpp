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

/// The elements of `chunk`, which may extend past the end of `first`; `first` starts at element `begin`.
Tensor run_of(Tensor first, std::int64_t begin, const StateChunk& chunk) {
  first.data += static_cast<std::size_t>(chunk.begin - begin) * size_of(first.dtype);
  first.shape = {chunk.count};
  return first;
}

}  // namespace

Optimizer::Optimizer(Ctx& ctx, std::unique_ptr<UpdateRule> rule, std::vector<Param*> params, Placement placement)
    : rule_(std::move(rule)),
      params_(std::move(params)),
      state_(*rule_, params_, {ctx.device(), placement}),
      inputs_(ctx.device(), kLimitBytes + rates_of(params_).size() * kRateBytes),
      factor_(ctx.device(), kFactors),
      rates_(rates_of(params_)),
      hyperparameters_(rates_.size()),
      copies_(params_.size()) {
  for (const Param* p : params_)
    rate_of_.push_back(
        static_cast<std::size_t>(std::find(rates_.begin(), rates_.end(), p->spec.learning_rate) - rates_.begin()));
}

void Optimizer::allocate(Ctx& ctx) {
  state_.store().allocate();
  const bool hosted = state_.store().values().placement() == Placement::pinned;
  if ((hosted && state_.store().values().planned() > 0) || OptimizerState::has_values_on_host(params_))
    offload_ = std::make_unique<StateOffload>(ctx.device(), state_.chunks(params_, *rule_));
  else
    whole_ = joined(state_.whole());
  if (const std::size_t bytes = rule_->work_bytes(params_); bytes > 0) {
    work_ = DeviceMemory(ctx.device(), bytes, "optimizer workspace");
    rule_->prepare(ctx, {work_.data(), DType::u8, {static_cast<std::int64_t>(bytes)}, ctx.device()});
  }
}

void Optimizer::write_copies(const std::function<Tensor(const Param&)>& copy_of) {
  if (!rule_->writes_copies()) return;
  for (std::size_t i = 0; i < params_.size(); ++i) {
    const Param& p = *params_[i];
    const bool whole = p.own.count() == p.spec.shape.numel() && p.own.value.data == p.value.data;
    if (whole && p.spec.dtype == DType::f32) copies_[i] = copy_of(p);
  }
  if (!offload_) whole_ = joined(state_.whole());
}

bool Optimizer::writes_copy(const Param& p) const {
  const auto found = std::ranges::find(params_, &p);
  return found != params_.end() && copies_[static_cast<std::size_t>(found - params_.begin())];
}

void Optimizer::send(Ctx& ctx, const UpdateInput& input) {
  const double limits[] = {input.max_grad_norm, input.loss_scale};
  for (std::size_t i = 0; i < rates_.size(); ++i)
    hyperparameters_[i] =
        inputs_.put(std::span<const double>(rule_->hyperparameters(input.learning_rate * rates_[i], updates() + 1)));
  limits_ = inputs_.put(std::span<const double>(limits));
  inputs_.send(ctx);
}

void Optimizer::update(Ctx& ctx, ConstTensor sums) {
  ops::clip(ctx, {.factor = factor_.all(), .sums = sums, .limits = limits_});
  if (offload_) return offload_->run(ctx, [&](const StateChunk& chunk) { update_part(ctx, chunk); });
  for (const StateChunk& chunk : whole_) update_part(ctx, chunk);
}

// Whether the next chunk in memory is updated with the same settings and can join this one.
bool Optimizer::continues(const StateChunk& chunk, const StateChunk& next) const {
  const Param &p = *params_[chunk.param], &q = *params_[next.param];
  const std::int64_t block_size = rule_->block_size(p.spec);
  if (block_size == 0 || block_size != rule_->block_size(q.spec) || chunk.count % block_size != 0) return false;
  if (rule_->decay(p.spec) != rule_->decay(q.spec) || rate_of_[chunk.param] != rate_of_[next.param]) return false;
  if (!are_contiguous(run_of(p.own.value, p.own.begin, chunk), q.own.value) ||
      !are_contiguous(run_of(p.own.grad, p.own.begin, chunk), q.own.grad))
    return false;
  const Tensor &copy = copies_[chunk.param], &next_copy = copies_[next.param];
  if (copy ? !are_contiguous(run_of(copy, 0, chunk), next_copy) : static_cast<bool>(next_copy)) return false;
  return std::equal(chunk.state.begin(), chunk.state.end(), next.state.begin(), next.state.end(), are_contiguous);
}

std::vector<StateChunk> Optimizer::joined(const std::vector<StateChunk>& chunks) const {
  std::vector<StateChunk> runs;
  for (const StateChunk& next : chunks) {
    if (runs.empty() || !continues(runs.back(), next)) {
      runs.push_back(next);
      continue;
    }
    StateChunk& run = runs.back();
    run.count += next.count;
    for (std::size_t i = 0; i < run.state.size(); ++i)
      run.state[i].shape = {run.state[i].numel() + next.state[i].numel()};
  }
  return runs;
}

void Optimizer::update_part(Ctx& ctx, const StateChunk& chunk) {
  const Param& p = *params_[chunk.param];
  const bool whole = chunk.count == p.own.count();
  const auto part = [&](const Tensor& t) { return whole ? t : run_of(t, p.own.begin, chunk); };
  rule_->update(ctx, {.spec = p.spec,
                      .param = chunk.value ? *chunk.value : part(p.own.value),
                      .grad = part(p.own.grad),
                      .begin = chunk.begin,
                      .state = chunk.state,
                      .hyperparameters = hyperparameters_[rate_of_[chunk.param]],
                      .factor = factor_.all(),
                      .copy = copies_[chunk.param] ? run_of(copies_[chunk.param], 0, chunk) : Tensor{}});
}

OptimizerMemory optimizer_memory(const UpdateRule& rule, std::span<Param* const> params, Device device) {
  OptimizerState here(rule, params, {device, Placement::device}), there(rule, params, {device, Placement::pinned});
  return {.state = here.store().values().planned(),
          .pinned = there.store().values().planned(),
          .chunks = StateOffload::bytes(there.chunks(params, rule)),
          .other = Optimizer::kDeviceBytes + rates_of(params).size() * Optimizer::kRateBytes + rule.work_bytes(params)};
}

void add_squares(Ctx& ctx, std::span<Param* const> params, Tensor total) {
  std::vector<Tensor> grads;
  for (const Param* p : params)
    if (p->own.count() > 0) grads.push_back(p->own.grad);
  for (const Tensor& run : joined(grads)) ops::sum_squares(ctx, {.out = accumulate(total), .x = run});
}

}  // namespace qtrain
