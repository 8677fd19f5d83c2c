#include "kernels/adapter_grads.h"

#include "tests/cuda/each_type.h"
#include "tests/kernels/adapter_grads_cases.h"

namespace qtrain::testing {
namespace {

using Mode = Sink::Mode;

TEST(AdapterGradsOnCuda, AreSumsOverOutputsAndTokens) {
  in_each_type_on_cuda(computes_adapter_grads);
}

// Without tensor cores there are two GEMMs; other GPUs have less shared memory.
TEST(AdapterGradsOnCuda, AreTheSameOnOtherDevices) {
  for (const int capability : {75, 120})
    with_capability(capability, [] {
      const OnDevice device;
      Ctx ctx(kCuda, MatmulPrecision::bf16, 1);
      for (const AdapterGradCase& c : {AdapterGradCase{.tokens = 70, .layers = {{136, 16}, {24, 8}}},
                                       {.tokens = 64, .layers = {{40, 32}}, .mode = Mode::accumulate}}) {
        AdapterGradArrays arrays(c, DType::bf16, DType::bf16);
        arrays.run(ctx);
        arrays.expect(rounding_of(DType::bf16));
      }
    });
}

TEST(AdapterGradsOnCuda, AreTheSameInEachSchedule) {
  for_each_schedule([] {
    const OnDevice device;
    Ctx ctx(kCuda, MatmulPrecision::bf16, 1);
    AdapterGradArrays arrays({.tokens = 150, .layers = {{264, 16}, {24, 8}}, .mode = Mode::accumulate}, DType::bf16,
                             DType::bf16);
    arrays.run(ctx);
    arrays.expect(rounding_of(DType::bf16));
  });
}

TEST(AdapterGradsOnCuda, RoundFactorsInFloat32AndCopyWhatTheyRead) {
  const OnDevice device;
  for (const DType d : {DType::bf16, DType::f16}) {
    Ctx ctx(kCuda, d == DType::bf16 ? MatmulPrecision::bf16 : MatmulPrecision::f16, 1);
    for (AdapterGradCase c : adapter_grad_cases()) {
      AdapterGradArrays plain(c, d, DType::f32);
      if (!plain.reads_once(ctx) || c.memory == 0) continue;
      c.copies = true;
      AdapterGradArrays arrays(c, d, DType::f32);
      arrays.run(ctx);
      arrays.expect(rounding_of(d));
    }
  }
}

TEST(AdapterGradsOnCuda, ReadOnceWhatRowsOf16BytesHold) {
  const OnDevice device;
  Ctx ctx(kCuda, MatmulPrecision::bf16, 1);
  const auto reads_once = [&](const AdapterGradCase& c, DType d, DType of_b) {
    return AdapterGradArrays(c, d, of_b).reads_once(ctx);
  };
  EXPECT_TRUE(reads_once({.tokens = 3, .layers = {{8, 8}, {24, 16}}}, DType::bf16, DType::f32));
  EXPECT_TRUE(reads_once({.tokens = 3, .layers = {{8, 8}}}, DType::f16, DType::f16));
  EXPECT_FALSE(reads_once({.tokens = 3, .layers = {{8, 8}, {24, 24}}}, DType::bf16, DType::f32));
  EXPECT_FALSE(reads_once({.tokens = 3, .layers = {{8, 4}}}, DType::bf16, DType::f32));
  EXPECT_FALSE(reads_once({.tokens = 3, .layers = {{12, 8}}}, DType::bf16, DType::f32));
  EXPECT_FALSE(reads_once({.tokens = 3, .layers = {{8, 8}}}, DType::f32, DType::f32));
  // Nothing is copied if the sums do not fit into the memory.
  EXPECT_FALSE(reads_once({.tokens = 3, .layers = {{8, 8}}, .memory = 64}, DType::bf16, DType::f32));
}

}  // namespace
}  // namespace qtrain::testing
