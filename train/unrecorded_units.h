#pragma once
#include "core/graph.h"
#include "train/divided_model.h"

namespace qtrain {

/// A divided model whose passes are recorded: what ranks exchange at a unit is done between the recorded parts. Calls
/// of NCCL can be recorded too, but by all ranks or none of them, and each rank has sizes of micro-batches of its own.
class UnrecordedUnits : public UnitAccess {
 public:
  /// From here on passes of the model use this. All must outlive it.
  UnrecordedUnits(Transformer& model, DividedModel& divided, GraphCache& graphs) : divided_(divided), graphs_(graphs) {
    model.set_access(*this);
  }

  void enter(Ctx& ctx, const Entry& entry) override {
    if (divided_.acts_on(entry)) graphs_.between([this, &ctx, entry] { divided_.enter(ctx, entry); });
  }
  void finish_gradients(Ctx& ctx, int unit) override {
    if (divided_.acts_on_gradients()) graphs_.between([this, &ctx, unit] { divided_.finish_gradients(ctx, unit); });
  }
  void values_changed() override { divided_.values_changed(); }

 private:
  DividedModel& divided_;
  GraphCache& graphs_;
};

}  // namespace qtrain
