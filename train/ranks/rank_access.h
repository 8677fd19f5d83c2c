#pragma once
#include "model/unit_access.h"

namespace qtrain {

/// What ranks exchange at the units of a pass.
class RankAccess : public UnitAccess {
 public:
  /// Whether there is anything to do where a unit is entered, or where its gradients are complete, in this micro-batch.
  virtual bool acts_on(const Entry& entry) const = 0;
  virtual bool acts_on_gradients(int unit) const = 0;
  /// Whether gradients of any unit are exchanged in it.
  virtual bool exchanges_gradients() const = 0;
};

}  // namespace qtrain
