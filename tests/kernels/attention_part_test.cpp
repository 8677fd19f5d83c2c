// Attention whose queries are a part of the tokens: parts one after the other are the whole.
#include <cstring>

#include "kernels/attention.h"
#include "tests/kernels/each_isa.h"
#include "tests/kernels/op_cases.h"

namespace qtrain::testing {
namespace {

/// One attention with its gradients: of all queries at once, or of parts that begin at `cuts`.
class PartedAttention {
 public:
  PartedAttention(Ctx& ctx, const AttentionSizes& n, DType d, std::vector<std::int64_t> cuts)
      : n_(n),
        cuts_(std::move(cuts)),
        cu_(integers(n.cu)),
        q_(random(d, {n.T(), n.Hq, n.D}, 1)),
        k_(random(d, {n.T(), n.Hkv, n.D}, 2)),
        v_(random(d, k_.shape(), 3)),
        dy_(random(d, q_.shape(), 4)),
        sinks_(random(arithmetic_of(d), {n.Hq}, 5)),
        y(d, q_.shape()),
        lse(arithmetic_of(d), {n.Hq, n.T()}),
        dq(d, q_.shape()),
        dk(d, k_.shape()),
        dv(d, k_.shape()) {
    cuts_.push_back(n.T());
    for (std::size_t i = 0; i + 1 < cuts_.size(); ++i) run(ctx, cuts_[i], cuts_[i + 1] - cuts_[i]);
  }

 private:
  AttentionSizes n_;
  std::vector<std::int64_t> cuts_;
  Array cu_, q_, k_, v_, dy_, sinks_;

  void run(Ctx& ctx, std::int64_t first, std::int64_t count) {
    Array part(lse.dtype(), {n_.Hq, count});
    const auto of = [&](Array& a) { return a.tensor().slice(first, count); };
    ops::attention(ctx, {.y = of(y),
                         .lse = part,
                         .q = of(q_),
                         .k = k_,
                         .v = v_,
                         .cu_seqlens = cu_,
                         .window = n_.window,
                         .scale = n_.scale(),
                         .softcap = n_.softcap,
                         .sinks = n_.sinks ? ConstTensor(sinks_.tensor()) : ConstTensor{},
                         .first_query = first});
    ops::attention_grad(ctx, {.dq = store(of(dq)),
                              .dk = accumulate(dk.tensor()),
                              .dv = accumulate(dv.tensor()),
                              .dy = of(dy_),
                              .y = of(y),
                              .q = of(q_),
                              .k = k_,
                              .v = v_,
                              .lse = part,
                              .cu_seqlens = cu_,
                              .window = n_.window,
                              .scale = n_.scale(),
                              .softcap = n_.softcap,
                              .first_query = first});
    for (std::int64_t h = 0; h < n_.Hq; ++h)
      for (std::int64_t i = 0; i < count; ++i) lse.set(h * n_.T() + first + i, part.get(h * count + i));
  }

 public:
  Array y, lse, dq, dk, dv;
};

void expect_near(const Array& got, const Array& wanted, double tolerance, const std::string& what) {
  double worst = 0;
  for (std::int64_t i = 0; i < got.size(); ++i) worst = std::max(worst, std::abs(got.get(i) - wanted.get(i)));
  EXPECT_LE(worst, tolerance) << what;
}

std::vector<AttentionSizes> sizes() {
  return {{.name = "odd_heads", .cu = {0, 5, 50}, .Hq = 7, .Hkv = 7, .D = 10},
          {.name = "grouped", .cu = {0, 64, 67, 200, 420}, .Hq = 6, .Hkv = 2, .D = 16},
          {.name = "window", .cu = {0, 33, 400}, .Hq = 4, .Hkv = 2, .D = 32, .window = 37},
          {.name = "softcap_window", .cu = {0, 390}, .Hq = 2, .Hkv = 1, .D = 18, .window = 170, .softcap = 1.5},
          {.name = "sinks", .cu = {0, 1, 2, 2, 7, 250}, .Hq = 6, .Hkv = 2, .D = 64, .sinks = true},
          {.name = "wide_heads", .cu = {0, 2, 270}, .Hq = 2, .Hkv = 1, .D = 256}};
}

// Pieces of equal size, one that is all but a token, and cuts at the borders of documents.
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
        // Of sums of hundreds of terms of order 1; in bfloat16 each part is rounded where it is added.
        const double tolerance = d == DType::f32 ? 2e-4 : 0.25;
        expect_near(parts.dk, exact.dk, tolerance, "dk");
        expect_near(parts.dv, exact.dv, tolerance, "dv");
      }
    }
}

}  // namespace
}  // namespace qtrain::testing
