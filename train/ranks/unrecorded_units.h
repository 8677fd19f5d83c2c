#pragma once
#include "core/graph.h"
#include "model/runner.h"
#include "train/ranks/gradient_exchange.h"

namespace qtrain {

/// Runs the exchanges of recorded passes between the recorded parts. NCCL calls can only be recorded by all ranks or
/// none, and micro-batch sizes differ between ranks.
class UnrecordedUnits : public UnitAccess {
 public:
  /// From here on the runner's passes use this object. All arguments must outlive it.
  UnrecordedUnits(Runner& runner, GradientExchange& exchange, GraphCache& graphs)
      : exchange_(exchange), graphs_(graphs) {
    runner.set_access(*this);
  }

  void enter(Ctx& ctx, const Entry& entry) override {
    if (exchange_.acts_on(entry)) graphs_.between([this, &ctx, entry] { exchange_.enter(ctx, entry); });
  }
  void finish_gradients(Ctx& ctx, int unit) override {
    if (exchange_.acts_on_gradients(unit))
      graphs_.between([this, &ctx, unit] { exchange_.finish_gradients(ctx, unit); });
  }
  bool exchanges_gradients() const { return exchange_.exchanges_gradients(); }
  void values_changed() override { exchange_.values_changed(); }

 private:
  GradientExchange& exchange_;
  GraphCache& graphs_;
};

}  // namespace qtrain
