// The choice of experts and the order of their rows on the CUDA device are the same as on the CPU.
#include "kernels/router.h"
#include "tests/cuda/schedules.h"
#include "tests/kernels/expert_cases.h"

namespace qtrain::testing {
namespace {

std::vector<std::int32_t> all_of(const Array& a) {
  const std::int32_t* p = a.host<std::int32_t>();
  return {p, p + a.size()};
}

// Several chunks of choices, the last of which is short.
std::vector<Choices> long_choices() {
  std::vector<Choices> choices = expert_choices();
  choices.push_back({"chunks", 300, 9, 8, [](std::int64_t i) { return i * i % 11 % 9; }});
  choices.push_back({"many_experts", 130, 300, 8, [](std::int64_t i) { return i * 37 % 301 % 300; }});
  return choices;
}

TEST(CudaExperts, AreOrderedByAStableSort) {
  Ctx ctx(kCuda, MatmulPrecision::storage, 1);
  const auto expect_sorted = [&] {
    for (const Choices& n : long_choices()) {
      const OnDevice device;
      const OrderedChoices order(ctx, n);
      ctx.synchronize();
      EXPECT_EQ(all_of(order.offsets), n.offsets()) << n.name;
      const std::vector<std::int32_t> slots = n.slots(), places = all_of(order.places);
      EXPECT_EQ(all_of(order.slots), slots) << n.name;
      for (std::size_t p = 0; p < slots.size(); ++p)
        EXPECT_EQ(places[static_cast<std::size_t>(slots[p])], static_cast<std::int32_t>(p)) << n.name;
    }
  };
  expect_sorted();
  for_each_schedule(expect_sorted);
}

// Many equal values, both zeros, infinities and NaN.
TEST(CudaExperts, AreThoseThatTheProcessorChooses) {
  const double odd[] = {0, -0.0, std::nan(""), -std::nan(""), INFINITY, -INFINITY, 1, -1};
  for (const Shape& s : {Shape{40, 5}, Shape{17, 33}, Shape{9, 128}, Shape{5, 300}})
    for (const DType d : {DType::f32, DType::bf16}) {
      Array logits(d, s);
      for (std::int64_t i = 0; i < s.numel(); ++i) {
        const std::int64_t draw = (i * i + i / s[1]) % 29;
        logits.set(i, i / s[1] % 3 == 0 && draw < 8 ? odd[draw] : static_cast<double>(draw % 7) / 2);
      }
      std::vector<std::vector<std::int32_t>> chosen;
      for (const Device device : {Device{}, kCuda}) {
        array_device() = device;
        Ctx ctx(device, MatmulPrecision::storage, 1);
        Array experts(DType::i32, {s[0], 5}), weights(DType::f32, {s[0], 5}), probs(DType::f32, s);
        ops::route(ctx, {.experts = experts, .weights = weights, .probs = probs, .logits = logits});
        ctx.synchronize();
        chosen.push_back(all_of(experts));
        logits.values();
      }
      array_device() = {};
      EXPECT_EQ(chosen[0], chosen[1]) << to_string(s);
    }
}

}  // namespace
}  // namespace qtrain::testing
