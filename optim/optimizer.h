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
  double grad_scale = 1;  ///< gradients are multiplied by it first (clipping)
};

/// Updates trained parameters from their gradients. Its state is a parameter store of its own, so that checkpoints and
/// memory plans need no code per optimizer.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// One update of every parameter; `updates()` counts it.
  virtual void step(Ctx& ctx, const UpdateInput& input) = 0;

  ParamStore& state() { return state_; }
  std::int64_t updates() const { return updates_; }
  void set_updates(std::int64_t n) { updates_ = n; }

 protected:
  explicit Optimizer(Device device) : state_("optimizer", device) {}
  ParamStore state_;
  std::int64_t updates_ = 0;
};

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0;  ///< on parameters that declare Decay::yes
};

/// State per parameter: exp_avg.<name> and exp_avg_sq.<name> in its dtype, zero at first. Allocate with
/// state().allocate().
std::unique_ptr<Optimizer> make_adamw(Ctx& ctx, std::vector<Param*> params, const AdamWOptions& options);
/// Declares that state in a store: for plans, which need no optimizer.
void declare_adamw_state(ParamStore& state, std::span<Param* const> params);

/// Adds the squares of all gradients to `total` (f64 [1] on the device), in the order of `params`.
void add_squares(Ctx& ctx, std::span<Param* const> params, Tensor total);
/// L2 norm of all gradients together, summed in f64 in the order of `params`. Waits for the device.
double global_grad_norm(Ctx& ctx, std::span<Param* const> params);

/// min(1, max_norm / (norm + 1e-6)) as torch.nn.utils.clip_grad_norm_; 1 when max_norm is 0 (off).
double clip_coefficient(double norm, double max_norm);

}  // namespace qtrain
