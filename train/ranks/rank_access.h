#pragma once
#include "model/unit_access.h"

namespace qtrain {

/// Exchanges between ranks at the units of a pass.
class RankAccess : public UnitAccess {
 public:
  /// Whether entering a unit, or completing its gradients, involves an exchange in this micro-batch.
  virtual bool acts_on(const Entry& entry) const = 0;
  virtual bool acts_on_gradients(int unit) const = 0;
  /// Whether gradients of any unit are exchanged in this micro-batch.
  virtual bool exchanges_gradients() const = 0;
};

}  // namespace qtrain
