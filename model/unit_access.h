#pragma once
#include "core/context.h"

namespace qtrain {

/// How a pass comes to parameters that are divided among ranks: it says which unit it is about to read, and when a
/// unit's gradients are complete. Every rank goes through the same units in the same order.
class UnitAccess {
 public:
  virtual ~UnitAccess() = default;

  /// Whether a pass adds to the gradients of a unit from here on.
  enum class Gradients : std::uint8_t { no, yes };
  /// A unit that is about to be read, and the one after it, which may be fetched meanwhile.
  struct Entry {
    int unit, next = kNoUnit;
    Gradients gradients = Gradients::no;
  };
  static constexpr int kNoUnit = -1;
  /// The values of the unit are there when this returns, until one is entered or next that has the same memory. With
  /// Gradients::yes its gradients begin at zero.
  virtual void enter(Ctx& ctx, const Entry& entry) = 0;
  /// All gradients of this micro-batch are in those of the unit.
  virtual void finish_gradients(Ctx& ctx, int unit) = 0;
  /// Parameters have other values than when their units were entered.
  virtual void values_changed() = 0;
};

/// Of a model that is whole on every rank.
class WholeModel : public UnitAccess {
 public:
  void enter(Ctx&, const Entry&) override {}
  void finish_gradients(Ctx&, int) override {}
  void values_changed() override {}
};

}  // namespace qtrain
