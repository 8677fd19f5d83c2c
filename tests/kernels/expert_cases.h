#pragma once
#include "kernels/expert_order.h"
#include "tests/kernels/op_cases.h"

namespace qtrain::testing {

/// Which experts the tokens of a test go to.
struct Choices {
  std::string name;
  std::int64_t T, E, k;
  /// The expert of choice i = t * k + j.
  std::function<std::int64_t(std::int64_t i)> expert;

  std::int64_t count() const { return T * k; }
  Array experts() const;
  /// The flat index at each position of the order, by a stable sort.
  std::vector<std::int32_t> slots() const;
  /// Rows [offsets[e], offsets[e + 1]) are expert e's.
  std::vector<std::int32_t> offsets() const;
};
/// One token, experts without any, all with one, as many as models have.
std::vector<Choices> expert_choices();

/// What ops::expert_order gives for them.
struct OrderedChoices {
  Array offsets, slots, places;

  OrderedChoices(Ctx& ctx, const Choices& choices);
};

}  // namespace qtrain::testing
