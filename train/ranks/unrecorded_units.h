#pragma once
#include "core/graph.h"
#include "model/runner.h"
#include "train/ranks/rank_access.h"

namespace qtrain {

/// Runs the exchanges of recorded passes between the recorded parts. NCCL calls can only be recorded by all ranks or
/// none, and micro-batch sizes differ between ranks.
class UnrecordedUnits : public UnitAccess {
 public:
  /// From here on the runner's passes use this object. All arguments must outlive it.
  UnrecordedUnits(Runner& runner, RankAccess& ranks, GraphCache& graphs) : ranks_(ranks), graphs_(graphs) {
    runner.set_access(*this);
  }

  void enter(Ctx& ctx, const Entry& entry) override {
    if (ranks_.acts_on(entry)) graphs_.between([this, &ctx, entry] { ranks_.enter(ctx, entry); });
  }
  void finish_gradients(Ctx& ctx, int unit) override {
    if (ranks_.acts_on_gradients(unit)) graphs_.between([this, &ctx, unit] { ranks_.finish_gradients(ctx, unit); });
  }
  bool exchanges_gradients() const { return ranks_.exchanges_gradients(); }
  void values_changed() override { ranks_.values_changed(); }

 private:
  RankAccess& ranks_;
  GraphCache& graphs_;
};

}  // namespace qtrain
