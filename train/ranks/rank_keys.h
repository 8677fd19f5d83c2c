#pragma once
#include <deque>

#include "dist/collective.h"
#include "model/context_share.h"

namespace qtrain {

/// Exchanges keys and values among ranks that share the tokens of micro-batches.
class RankKeys : public KeyExchange {
 public:
  /// `ranks` in the order of ContextShare.
  explicit RankKeys(Collective& ranks) : ranks_(ranks) {}

  void begin_gather(Ctx& ctx, ConstTensor mine, Tensor all) override;
  void finish_gather(Ctx& ctx) override;
  void reduce(Ctx& ctx, Tensor all, Tensor spare, const Sink& mine) override;
  /// Total seconds so far, including waiting for other ranks; on a GPU only host time.
  double seconds() const { return seconds_; }

 private:
  struct Gather {
    Pending pending;
    Tensor second;  ///< second pieces of all ranks
  };
  Collective& ranks_;
  std::deque<Gather> gathers_;
  double seconds_ = 0;
};

}  // namespace qtrain
