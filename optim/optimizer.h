#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/context.h"
#include "core/param_store.h"

namespace qtrain {

/// What changes from step to step.
struct UpdateInput {
  double learning_rate = 0;
  double max_grad_norm = 0;  ///< longer gradients are shortened to it, as torch.nn.utils.clip_grad_norm_; 0: no limit
  double loss_scale = 1;     ///< the gradients are those of the loss times this
};

/// Updates trained parameters from their gradients. Its state is a parameter store of its own, so that checkpoints and
/// memory plans need no code per optimizer.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// Sends what the next update depends on.
  virtual void send(Ctx& ctx, const UpdateInput& input) = 0;
  /// Queues one update of every parameter, with what was sent; nothing changes if one of `sums` is not finite: f64 [2]
  /// on the device, the loss and the squares of all gradients. Queues the same work every time, so it can be recorded.
  virtual void update(Ctx& ctx, ConstTensor sums) = 0;

  /// Takes the memory of the state, and what it needs on its way where it is on the host.
  virtual void allocate() { state_.allocate(); }
  ParamStore& state() { return state_; }
  /// Updates that took place: the host counts them when it knows.
  std::int64_t updates() const { return updates_; }
  void set_updates(std::int64_t n) { updates_ = n; }

  /// Bytes that an optimizer keeps on the device besides its state.
  static constexpr std::size_t kDeviceBytes = 144;

 protected:
  explicit Optimizer(Device device, Placement placement = Placement::device) : state_("optimizer", device, placement) {}
  ParamStore state_;

 private:
  std::int64_t updates_ = 0;
};

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0;  ///< on parameters that declare Decay::yes
  Placement state = Placement::device;
};

/// State per parameter: exp_avg.<name> and exp_avg_sq.<name> in its dtype, zero at first.
std::unique_ptr<Optimizer> make_adamw(Ctx& ctx, std::vector<Param*> params, const AdamWOptions& options);
/// Declares that state in a store: for plans, which need no optimizer.
void declare_adamw_state(ParamStore& state, std::span<Param* const> params);

/// Adds the squares of all gradients to `total` (f64 [1] on the device), in the order of `params`.
void add_squares(Ctx& ctx, std::span<Param* const> params, Tensor total);

}  // namespace qtrain
