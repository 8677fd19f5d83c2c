// Which experts tokens go to, and the order of their rows: exact results.
#include "kernels/expert_order.h"

#include "kernels/router.h"
#include "tests/kernels/expert_cases.h"

namespace qtrain::testing {
namespace {

std::vector<std::int32_t> whole(const Array& a) {
  const std::int32_t* p = a.host<std::int32_t>();
  return {p, p + a.size()};
}

TEST(ExpertOrder, IsAStableSort) {
  Ctx ctx({}, MatmulPrecision::storage, 2);
  for (const Choices& n : expert_choices()) {
    const OrderedChoices order(ctx, n);
    EXPECT_EQ(whole(order.offsets), n.offsets()) << n.name;
    EXPECT_EQ(whole(order.slots), n.slots()) << n.name;
    const std::vector<std::int32_t> slots = n.slots(), places = whole(order.places);
    for (std::size_t p = 0; p < slots.size(); ++p)
      EXPECT_EQ(places[static_cast<std::size_t>(slots[p])], static_cast<std::int32_t>(p)) << n.name;
  }
}

TEST(ExpertOrder, RefusesAnExpertThatDoesNotExist) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  EXPECT_THROW(OrderedChoices(ctx, {"beyond", 2, 3, 1, [](std::int64_t i) { return 2 * i + 1; }}), Error);
}

TEST(Route, TakesTheLowerIndexOfEqualLogits) {
  const double nan = std::nan("");
  const std::vector<std::vector<double>> rows{
      {1, 1, 1, 1, 1}, {0, 2, -1, 2, 2}, {-1, 0, -0.0, 0, -2}, {-3, -1, -2, -1, -9}, {1, nan, 2, nan, nan}};
  const std::vector<std::int32_t> want{0, 1, 2, 1, 3, 4, 1, 2, 3, 1, 3, 2, 1, 3, 4};
  Array logits(DType::f32, {5, 5}), experts(DType::i32, {5, 3}), weights(DType::f32, {5, 3}), probs(DType::f32, {5, 5});
  for (std::int64_t i = 0; i < logits.size(); ++i)
    logits.set(i, rows[static_cast<std::size_t>(i / 5)][static_cast<std::size_t>(i % 5)]);
  Ctx ctx({}, MatmulPrecision::storage, 1);
  ops::route(ctx, {.experts = experts, .weights = weights, .probs = probs, .logits = logits});
  EXPECT_EQ(whole(experts), want);
}

}  // namespace
}  // namespace qtrain::testing
