#pragma once
#include "kernels/attention.h"
#include "tests/kernels/op_cases.h"

namespace qtrain::testing {

/// Attention with its gradients, for all queries at once or in parts that start at `cuts`.
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
    for (Array* a : {&dk, &dv})
      for (std::int64_t i = 0; i < a->size(); ++i) a->set(i, 0);
    for (std::size_t i = 0; i + 1 < cuts_.size(); ++i) run(ctx, cuts_[i], cuts_[i + 1] - cuts_[i]);
  }

 private:
  AttentionSizes n_;
  std::vector<std::int64_t> cuts_;
  Array cu_, q_, k_, v_, dy_, sinks_;

  void run(Ctx& ctx, std::int64_t first, std::int64_t count) {
    Array part(lse.dtype(), {n_.Hq, count}), memory(DType::f32, {n_.memory_elements()});
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
                              .first_query = first,
                              .memory = n_.memory > 0 ? memory.tensor() : Tensor{}});
    for (std::int64_t h = 0; h < n_.Hq; ++h)
      for (std::int64_t i = 0; i < count; ++i) lse.set(h * n_.T() + first + i, part.get(h * count + i));
  }

 public:
  Array y, lse, dq, dk, dv;
};

inline void expect_near(const Array& got, const Array& wanted, double tolerance, const std::string& what) {
  double worst = 0;
  for (std::int64_t i = 0; i < got.size(); ++i) worst = std::max(worst, std::abs(got.get(i) - wanted.get(i)));
  EXPECT_LE(worst, tolerance) << what;
}

}  // namespace qtrain::testing
