#pragma once
#include <deque>

#include "dist/collective.h"
#include "model/context_share.h"

namespace qtrain {

/// Moves keys and values between the ranks that share the tokens of micro-batches.
class RankKeys : public KeyExchange {
 public:
  /// Of these ranks, in the order of ContextShare.
  explicit RankKeys(Collective& ranks) : ranks_(ranks) {}

  void begin_gather(Ctx& ctx, ConstTensor mine, Tensor all) override;
  void finish_gather(Ctx& ctx) override;
  void reduce(Ctx& ctx, Tensor all, Tensor spare, const Sink& mine) override;
  /// So far, with what it waited for other ranks; of a GPU for their hosts alone.
  double seconds() const { return seconds_; }

 private:
  struct Gather {
    Pending pending;
    Tensor second;  ///< pieces, in the order of the ranks
  };
  Collective& ranks_;
  std::deque<Gather> gathers_;
  double seconds_ = 0;
};

}  // namespace qtrain
