#pragma once
#include "core/graph.h"
#include "model/transformer.h"
#include "train/ranks/rank_access.h"

namespace qtrain {

/// Passes that are recorded: what ranks exchange at a unit is done between the recorded parts. Calls of NCCL can be
/// recorded too, but by all ranks or none of them, and each rank has sizes of micro-batches of its own.
class UnrecordedUnits : public UnitAccess {
 public:
  /// From here on passes of the model use this. All must outlive it.
  UnrecordedUnits(Transformer& model, RankAccess& ranks, GraphCache& graphs) : ranks_(ranks), graphs_(graphs) {
    model.set_access(*this);
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
