#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/context.h"
#include "core/param_store.h"
#include "core/transfer.h"
#include "optim/state_offload.h"

namespace qtrain {

/// Inputs that change from step to step.
struct UpdateInput {
  double learning_rate = 0;
  double max_grad_norm = 0;  ///< maximum gradient norm, as in torch.nn.utils.clip_grad_norm_; 0: no limit
  double loss_scale = 1;     ///< factor of the loss that the gradients contain
};

/// A parameter or a part of it, with everything that its update reads and writes. Parts are flat.
struct UpdatePart {
  const ParamSpec& spec;
  Tensor param;
  ConstTensor grad;
  std::int64_t begin;                   ///< index of its first element in the parameter
  std::span<const Tensor> state;        ///< in the order of state_of
  ConstTensor hyperparameters, factor;  ///< f64 on the device: what the rule sent; the result of ops::Clip
  Tensor copy = {};                     ///< the part's 16-bit copy, if the update writes it
};

/// Calls act(part) for each matrix of a whole parameter: for the parameter itself, or for each expert of [E, out, in].
/// Each expert's state is its share of the parameter's state, which is stored expert by expert.
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

/// How a parameter is updated. Holds the options, and device memory besides the optimizer state.
class UpdateRule {
 public:
  explicit UpdateRule(double weight_decay) : weight_decay_(weight_decay) {}
  virtual ~UpdateRule() = default;

  virtual std::vector<StateSpec> state_of(const ParamSpec& param) const = 0;
  /// The numbers that are sent to the device for update number `t`; the first update is 1.
  virtual std::array<double, 4> hyperparameters(double learning_rate, std::int64_t t) const = 0;
  /// Queues the update of a part; nothing changes if factor[1] is 0. It queues the same work every time.
  virtual void update(Ctx& ctx, const UpdatePart& part) const = 0;

  /// Whether `update` writes the copy of a part that has one.
  virtual bool writes_copies() const { return false; }
  /// Whether parts of a parameter can be updated separately.
  virtual Cut cut(const ParamSpec& /*param*/) const { return Cut::anywhere; }
  /// Contiguous parameters can be updated as one if their lengths are multiples of this: 1 if each element is updated
  /// independently, 0 if they cannot be joined.
  virtual std::int64_t block_size(const ParamSpec& /*param*/) const { return 0; }
  /// Bytes of device memory that updates of these parameters need besides their state; `prepare` fills that memory
  /// once.
  virtual std::size_t work_bytes(std::span<Param* const> /*params*/) const { return 0; }
  virtual void prepare(Ctx& /*ctx*/, Tensor /*work*/) {}

  /// Weight decay of a parameter.
  double decay(const ParamSpec& param) const { return param.decay == Decay::yes ? weight_decay_ : 0; }

 private:
  double weight_decay_;
};

/// Updates trained parameters, or this rank's parts of them, from their gradients by a rule. Its state is a separate
/// parameter store, so checkpoints need no code per rule.
class Optimizer {
 public:
  /// `placement`: where the state is kept.
  Optimizer(Ctx& ctx, std::unique_ptr<UpdateRule> rule, std::vector<Param*> params,
            Placement placement = Placement::device);

  /// Allocates the state, and the buffers that it is copied through if it is kept on the host.
  void allocate(Ctx& ctx);
  /// Lets updates write the 16-bit copies of parameters, too, in the same pass. `copy_of` returns the copy of a
  /// parameter, or an empty tensor if it has none. Called after `allocate`.
  void write_copies(const std::function<Tensor(const Param&)>& copy_of);
  /// Whether updates write the copy of this parameter: not if the rule cannot, or if this rank updates only a part.
  bool writes_copy(const Param& p) const;
  /// Sends the inputs of the next update.
  void send(Ctx& ctx, const UpdateInput& input);
  /// Queues one update of every parameter with the inputs that were sent. `sums` f64 [2] on the device holds the loss
  /// and the sum of squares of all gradients; nothing changes if one of them is not finite. Queues the same work every
  /// time, so it can be captured.
  void update(Ctx& ctx, ConstTensor sums);

  ParamStore& state() { return state_.store(); }
  /// Number of update launches for parameters whose state is on the device: one per group of joined parameters.
  std::size_t passes() const { return whole_.size(); }
  /// Number of updates so far; the host sets it once it knows.
  std::int64_t updates() const { return updates_; }
  void set_updates(std::int64_t n) { updates_ = n; }

  /// Device memory in bytes that every optimizer needs besides its state and its rule's work_bytes.
  static constexpr std::size_t kDeviceBytes = 64 + 2 * sizeof(double);
  /// Additional bytes per distinct learning rate.
  static constexpr std::size_t kRateBytes = 64;

 private:
  bool continues(const StateChunk& chunk, const StateChunk& next) const;
  std::vector<StateChunk> joined(const std::vector<StateChunk>& chunks) const;
  void update_part(Ctx& ctx, const StateChunk& chunk);

  std::unique_ptr<UpdateRule> rule_;
  std::vector<Param*> params_;
  OptimizerState state_;
  std::vector<StateChunk> whole_;          ///< all parameters, if the state is on the device
  std::unique_ptr<StateOffload> offload_;  ///< if the state is on the host
  DeviceMemory work_;                      ///< the rule's work_bytes
  StagingBuffer inputs_;
  DeviceNumbers factor_;
  std::vector<double> rates_;                 ///< distinct learning-rate factors of parameters
  std::vector<std::size_t> rate_of_;          ///< index into rates_ per parameter
  std::vector<ConstTensor> hyperparameters_;  ///< the last numbers sent, by rate
  std::vector<Tensor> copies_;                ///< by parameter; empty for those whose copy updates do not write
  ConstTensor limits_;
  std::int64_t updates_ = 0;
};

/// Memory that an optimizer needs, in bytes.
struct OptimizerMemory {
  std::size_t state = 0;   ///< device memory, if the state is on the device
  std::size_t pinned = 0;  ///< pinned memory, if the state is on the host,
  std::size_t chunks = 0;  ///< and device buffers that it is copied through
  std::size_t other = 0;   ///< device memory in both cases

  std::size_t on_device(Placement placement) const { return placement == Placement::device ? state : chunks; }
  std::size_t on_host(Placement placement) const { return placement == Placement::device ? 0 : pinned; }
};
/// The memory of an optimizer for these parameters, which need not be allocated.
OptimizerMemory optimizer_memory(const UpdateRule& rule, std::span<Param* const> params, Device device);

/// Adds the squares of all gradients on this rank to `total` (f64 [1] on the device), in the order of `params`.
/// Contiguous gradients are summed in one launch.
void add_squares(Ctx& ctx, std::span<Param* const> params, Tensor total);

}  // namespace qtrain
