#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/context.h"
#include "core/param_store.h"
#include "core/transfer.h"
#include "optim/state_offload.h"

namespace qtrain {

/// What changes from step to step.
struct UpdateInput {
  double learning_rate = 0;
  double max_grad_norm = 0;  ///< longer gradients are shortened to it, as torch.nn.utils.clip_grad_norm_; 0: no limit
  double loss_scale = 1;     ///< the gradients are those of the loss times this
};

/// A parameter or a part of it, with what its update reads and writes. Flat, but for whole parameters.
struct UpdatePart {
  const ParamSpec& spec;
  Tensor param;
  ConstTensor grad;
  std::int64_t begin;                   ///< where it begins in the parameter
  std::span<const Tensor> state;        ///< in the order of state_of
  ConstTensor hyperparameters, factor;  ///< f64 on the device: what the rule sent; as ops::Clip leaves it
};

/// Calls act(part) for each matrix of a parameter that is updated whole: for itself, or for that of each expert of [E,
/// out, in]. The state of a part is its share of the parameter's, which lies expert after expert.
template <class Act>
void each_matrix(const UpdatePart& part, const Act& act) {
  if (part.param.shape.rank != 3) return act(part);
  const std::int64_t experts = part.param.shape[0];
  const Shape matrix{part.param.shape[1], part.param.shape[2]};
  const auto part_of = [&](auto t, std::int64_t e) {
    const std::int64_t n = t.numel() / experts;
    t.shape = {t.numel()};
    return t.slice(e * n, n);
  };
  for (std::int64_t e = 0; e < experts; ++e) {
    std::vector<Tensor> state;
    for (const Tensor& s : part.state) state.push_back(part_of(s, e));
    act({.spec = part.spec,
         .param = part_of(part.param, e).reshaped(matrix),
         .grad = part_of(part.grad, e).reshaped(matrix),
         .begin = part.begin,
         .state = state,
         .hyperparameters = part.hyperparameters,
         .factor = part.factor});
  }
}

/// How one parameter is updated. It holds options, and what it needs on the device beside the state.
class UpdateRule {
 public:
  explicit UpdateRule(double weight_decay) : weight_decay_(weight_decay) {}
  virtual ~UpdateRule() = default;

  virtual std::vector<StateSpec> state_of(const ParamSpec& param) const = 0;
  /// What is sent to the device for update number `t`, the first is 1.
  virtual std::array<double, 4> hyperparameters(double learning_rate, std::int64_t t) const = 0;
  /// Queues the update of a part; nothing changes where factor[1] is 0. It queues the same work every time.
  virtual void update(Ctx& ctx, const UpdatePart& part) const = 0;

  /// Whether parts of a parameter can be updated by themselves.
  virtual Cut cut(const ParamSpec& /*param*/) const { return Cut::anywhere; }
  /// Parameters that are contiguous can be updated as one where their lengths are multiples of this: 1 where
  /// each element is updated by itself. 0: never.
  virtual std::int64_t block_size(const ParamSpec& /*param*/) const { return 0; }
  /// Bytes of the device that updates of these parameters need beside their state, and what is there before the first.
  virtual std::size_t work_bytes(std::span<Param* const> /*params*/) const { return 0; }
  virtual void prepare(Ctx& /*ctx*/, Tensor /*work*/) {}

  /// Weight decay of a parameter.
  double decay(const ParamSpec& param) const { return param.decay == Decay::yes ? weight_decay_ : 0; }

 private:
  double weight_decay_;
};

/// Updates trained parameters, or the parts of them that are this rank's, from their gradients by a rule. Its state is
/// a parameter store of its own, so that checkpoints need no code per rule.
class Optimizer {
 public:
  /// `placement`: where the state is.
  Optimizer(Ctx& ctx, std::unique_ptr<UpdateRule> rule, std::vector<Param*> params,
            Placement placement = Placement::device);

  /// Takes the memory of the state, and what it needs on its way where it is on the host.
  void allocate(Ctx& ctx);
  /// Sends what the next update depends on.
  void send(Ctx& ctx, const UpdateInput& input);
  /// Queues one update of every parameter, with what was sent; nothing changes if one of `sums` is not finite: f64 [2]
  /// on the device, the loss and the squares of all gradients. Queues the same work every time, so it can be recorded.
  void update(Ctx& ctx, ConstTensor sums);

  ParamStore& state() { return state_.store(); }
  /// Passes of an update over parameters that are on the device with their state: one for all that are updated as one.
  std::size_t passes() const { return whole_.size(); }
  /// Updates that took place: the host counts them when it knows.
  std::int64_t updates() const { return updates_; }
  void set_updates(std::int64_t n) { updates_ = n; }

  /// Bytes that every optimizer has on the device beside its state and what its rule asks for.
  static constexpr std::size_t kDeviceBytes = 64 + 2 * sizeof(double);
  /// More for each learning rate that parameters have.
  static constexpr std::size_t kRateBytes = 64;

 private:
  bool continues(const StateChunk& chunk, const StateChunk& next) const;
  std::vector<StateChunk> joined(const std::vector<StateChunk>& chunks) const;
  void update_part(Ctx& ctx, const StateChunk& chunk);

  std::unique_ptr<UpdateRule> rule_;
  std::vector<Param*> params_;
  OptimizerState state_;
  std::vector<StateChunk> whole_;          ///< all parameters, where the state is on the device
  std::unique_ptr<StateOffload> offload_;  ///< where it is on the host
  DeviceMemory work_;                      ///< of the rule
  StagingBuffer inputs_;
  DeviceNumbers factor_;
  std::vector<double> rates_;                 ///< that parameters have beside that of the run
  std::vector<std::size_t> rate_of_;          ///< of each parameter
  std::vector<ConstTensor> hyperparameters_;  ///< by rate: what was sent last
  ConstTensor limits_;
  std::int64_t updates_ = 0;
};

/// Bytes that an optimizer takes.
struct OptimizerMemory {
  std::size_t state = 0;   ///< where it is on the device
  std::size_t pinned = 0;  ///< where it is on the host: there,
  std::size_t chunks = 0;  ///< and on the device, on its way
  std::size_t other = 0;   ///< on the device in any case

  std::size_t on_device(Placement placement) const { return placement == Placement::device ? state : chunks; }
  std::size_t on_host(Placement placement) const { return placement == Placement::device ? 0 : pinned; }
};
/// Of an optimizer for these parameters, which need no memory.
OptimizerMemory optimizer_memory(const UpdateRule& rule, std::span<Param* const> params, Device device);

/// Adds the squares of all gradients that are this rank's to `total` (f64 [1] on the device), in the order of `params`.
/// Gradients that are contiguous are one sum.
void add_squares(Ctx& ctx, std::span<Param* const> params, Tensor total);

}  // namespace qtrain
