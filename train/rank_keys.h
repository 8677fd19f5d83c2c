#pragma once
#include "dist/collective.h"
#include "model/context_share.h"

namespace qtrain {

/// Moves keys and values between the ranks that share the tokens of micro-batches.
class RankKeys : public KeyExchange {
 public:
  /// Of these ranks, in the order of ContextShare; tensors are in memory of the host.
  explicit RankKeys(Collective& ranks) : ranks_(ranks) {}

  void gather(Ctx& ctx, ConstTensor mine, Tensor all) override;
  void reduce(Ctx& ctx, Tensor all, Tensor spare, const Sink& mine) override;

 private:
  Collective& ranks_;
};

}  // namespace qtrain
