#pragma once
#include "kernels/expert_order.h"
#include "tests/kernels/op_cases.h"

namespace qtrain::testing {

/// The experts chosen by the tokens of a test.
struct Choices {
  std::string name;
  std::int64_t T, E, k;
  /// The expert of choice i = t * k + j.
  std::function<std::int64_t(std::int64_t i)> expert;

  std::int64_t count() const { return T * k; }
  Array experts() const;
  /// The flat index at each position of the stable sort.
  std::vector<std::int32_t> slots() const;
  /// Expert e has rows [offsets[e], offsets[e + 1]).
  std::vector<std::int32_t> offsets() const;
};
/// One token; experts without rows; all tokens with one expert; as many experts as real models have.
std::vector<Choices> expert_choices();

/// The outputs of ops::expert_order for them.
struct OrderedChoices {
  Array offsets, slots, places;

  OrderedChoices(Ctx& ctx, const Choices& choices);
};

}  // namespace qtrain::testing
