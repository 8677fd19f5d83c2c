// Attention whose queries are a part of the tokens: the parts together equal the whole.
#include "tests/kernels/each_isa.h"
#include "tests/kernels/parted_attention.h"

namespace qtrain::testing {
namespace {

std::vector<AttentionSizes> sizes() {
  return {{.name = "odd_heads", .cu = {0, 5, 50}, .Hq = 7, .Hkv = 7, .D = 10},
          {.name = "grouped", .cu = {0, 64, 67, 200, 420}, .Hq = 6, .Hkv = 2, .D = 16},
          {.name = "window", .cu = {0, 33, 400}, .Hq = 4, .Hkv = 2, .D = 32, .window = 37},
          {.name = "softcap_window", .cu = {0, 390}, .Hq = 2, .Hkv = 1, .D = 18, .window = 170, .softcap = 1.5},
          {.name = "sinks", .cu = {0, 1, 2, 2, 7, 250}, .Hq = 6, .Hkv = 2, .D = 64, .sinks = true},
          {.name = "wide_heads", .cu = {0, 2, 270}, .Hq = 2, .Hkv = 1, .D = 256}};
}

// Pieces of equal size, a piece of all tokens but one, and cuts at document boundaries.
std::vector<std::vector<std::int64_t>> cuts_of(const AttentionSizes& n) {
  const std::int64_t quarter = (n.T() + 3) / 4;
  std::vector<std::int64_t> documents;
  for (const std::int32_t border : n.cu)
    if (border < n.T() && (documents.empty() || border > documents.back())) documents.push_back(border);
  return {{0, quarter, 2 * quarter, 3 * quarter}, {0, 1}, {0, n.T() - 1}, documents};
}

TEST(AttentionPart, OfDoublesAddUpToTheWhole) {
  Ctx ctx({}, MatmulPrecision::storage, 3);
  for (const AttentionSizes& n : sizes()) {
    const PartedAttention whole(ctx, n, DType::f64, {0});
    for (const auto& cuts : cuts_of(n)) {
      const PartedAttention parts(ctx, n, DType::f64, cuts);
      SCOPED_TRACE(n.name + " in " + std::to_string(cuts.size()));
      EXPECT_EQ(parts.y.bytes(), whole.y.bytes());
      EXPECT_EQ(parts.lse.bytes(), whole.lse.bytes());
      EXPECT_EQ(parts.dq.bytes(), whole.dq.bytes());
      expect_near(parts.dk, whole.dk, 1e-13, "dk");  // sums of doubles in another order
      expect_near(parts.dv, whole.dv, 1e-13, "dv");
    }
  }
}

class AttentionPartOnEach : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isa, AttentionPartOnEach, ::testing::ValuesIn(kIsas), isa_name);

TEST_P(AttentionPartOnEach, HasTheBitsOfTheWholeAndItsKeyGradientsAddUp) {
  Ctx ctx({}, MatmulPrecision::storage, 3);
  for (const AttentionSizes& n : sizes())
    for (const DType d : {DType::f32, DType::bf16}) {
      const PartedAttention whole(ctx, n, d, {0}), exact(ctx, n, DType::f64, {0});
      for (const auto& cuts : cuts_of(n)) {
        const PartedAttention parts(ctx, n, d, cuts);
        SCOPED_TRACE(n.name + " in " + std::to_string(cuts.size()));
        EXPECT_EQ(parts.y.bytes(), whole.y.bytes());
        EXPECT_EQ(parts.lse.bytes(), whole.lse.bytes());
        EXPECT_EQ(parts.dq.bytes(), whole.dq.bytes());
        // Sums of hundreds of terms of order 1; in bfloat16 each part is rounded when it is added.
        const double tolerance = d == DType::f32 ? 2e-4 : 0.25;
        expect_near(parts.dk, exact.dk, tolerance, "dk");
        expect_near(parts.dv, exact.dv, tolerance, "dv");
      }
    }
}

}  // namespace
}  // namespace qtrain::testing
