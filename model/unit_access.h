#pragma once
#include "core/context.h"

namespace qtrain {

/// How a pass accesses parameters that are sharded among ranks: it announces the unit that it is about to read, and
/// when a unit's gradients are complete. Every rank visits the same units in the same order.
class UnitAccess {
 public:
  virtual ~UnitAccess() = default;

  /// Whether the pass adds to the unit's gradients from here on.
  enum class Gradients : std::uint8_t { no, yes };
  /// The unit that is about to be read, and the one after it, which may be prefetched.
  struct Entry {
    int unit, next = kNoUnit;
    Gradients gradients = Gradients::no;
  };
  static constexpr int kNoUnit = -1;
  /// Makes the unit's values available until a unit that uses the same memory is entered or prefetched. With
  /// Gradients::yes its gradients start at zero.
  virtual void enter(Ctx& ctx, const Entry& entry) = 0;
  /// The gradients of this micro-batch are complete for the unit.
  virtual void finish_gradients(Ctx& ctx, int unit) = 0;
  /// Invalidates units whose parameters have changed since they were entered.
  virtual void values_changed() = 0;
};

/// Access to a model of which every rank holds all parameters.
class WholeModel : public UnitAccess {
 public:
  void enter(Ctx&, const Entry&) override {}
  void finish_gradients(Ctx&, int) override {}
  void values_changed() override {}
};

}  // namespace qtrain
