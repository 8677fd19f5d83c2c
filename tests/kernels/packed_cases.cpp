#include <numbers>

#include "kernels/glu.h"
#include "kernels/rope.h"
#include "kernels/split_rope.h"
#include "tests/kernels/op_cases.h"

namespace qtrain::testing {
namespace {

using Numbers = std::vector<double>;

double logistic(double x) {
  return 1 / (1 + std::exp(-x));
}

/// Halves with an activation, or pairs that are clamped.
struct PackedForm {
  const char* name;
  ops::GluOrder order = ops::GluOrder::halves;
  ops::Activation activation = ops::Activation::silu;
  double alpha = 1, limit = 0;

  double operator()(double g, double u) const {
    if (limit > 0) {
      g = std::min(g, limit);
      return (std::clamp(u, -limit, limit) + 1) * g * logistic(alpha * g);
    }
    if (activation == ops::Activation::silu) return u * g * logistic(g);
    return u * 0.5 * g * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (g + 0.044715 * g * g * g)));
  }
};

OpCase packed_glu_case(std::int64_t T, std::int64_t F, const PackedForm& form) {
  return {.name = std::string("packed_glu_") + form.name + "_" + std::to_string(T) + "x" + std::to_string(F),
          .inputs = {{"x", {T, 2 * F}}},
          .forward =
              [=](Ctx& ctx, DType d, Arrays& in) {
                Arrays out{Array(d, {T, F})};
                ops::packed_glu(ctx, {.y = out[0],
                                      .x = in[0],
                                      .order = form.order,
                                      .activation = form.activation,
                                      .alpha = form.alpha,
                                      .limit = form.limit});
                return out;
              },
          .formula =
              [=](const Arrays& in) {
                const bool halves = form.order == ops::GluOrder::halves;
                Numbers y;
                for (std::int64_t t = 0; t < T; ++t)
                  for (std::int64_t c = 0; c < F; ++c)
                    y.push_back(form(in[0].get(t * 2 * F + (halves ? c : 2 * c)),
                                     in[0].get(t * 2 * F + (halves ? F + c : 2 * c + 1))));
                return y;
              },
          .backward =
              [=](Ctx& ctx, DType, const OpCase::Backward& b) {
                ops::packed_glu_grad(ctx, {.dx = b.gradients[0],
                                           .dy = b.dy,
                                           .x = b.inputs[0],
                                           .order = form.order,
                                           .activation = form.activation,
                                           .alpha = form.alpha,
                                           .limit = form.limit});
              }};
}

/// Heads of D elements, of which the first R are rotated.
struct SplitSizes {
  std::int64_t T, Hq, Hkv, D, R;

  std::int64_t heads() const { return Hq + 2 * Hkv; }
  std::int64_t position(std::int64_t t) const { return t * 5 % 7; }
};

struct SplitTables {
  Array cos, sin, positions;

  SplitTables(const SplitSizes& n, DType d)
      : cos(arithmetic_of(d), {7, n.R / 2}), sin(arithmetic_of(d), {7, n.R / 2}), positions(DType::i32, {n.T}) {
    for (std::int64_t p = 0; p < 7; ++p)
      for (std::int64_t i = 0; i < n.R / 2; ++i) {
        cos.set(p * n.R / 2 + i, std::cos(angle(n, p, i)));
        sin.set(p * n.R / 2 + i, std::sin(angle(n, p, i)));
      }
    for (std::int64_t t = 0; t < n.T; ++t) positions.host<std::int32_t>()[t] = static_cast<std::int32_t>(n.position(t));
  }
  static double angle(const SplitSizes& n, std::int64_t p, std::int64_t i) {
    return static_cast<double>(p) * std::pow(100.0, -2 * static_cast<double>(i) / static_cast<double>(n.R));
  }
};

/// All three results, concatenated in one array.
struct SplitResults {
  Tensor q, k, v;

  SplitResults(const SplitSizes& n, Tensor all) {
    const std::int64_t queries = n.T * n.Hq * n.D, keys = n.T * n.Hkv * n.D;
    q = all.slice(0, queries).reshaped({n.T, n.Hq, n.D});
    k = all.slice(queries, keys).reshaped({n.T, n.Hkv, n.D});
    v = all.slice(queries + keys, keys).reshaped({n.T, n.Hkv, n.D});
  }
};

Numbers split_rope_formula(const SplitSizes& n, const Array& qkv) {
  const std::int64_t half = n.R / 2;
  Numbers y;
  const auto add = [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t t = 0; t < n.T; ++t)
      for (std::int64_t h = first; h < first + count; ++h)
        for (std::int64_t d = 0; d < n.D; ++d) {
          const auto x = [&](std::int64_t i) { return qkv.get((t * n.heads() + h) * n.D + i); };
          const double a = SplitTables::angle(n, n.position(t), d % half);
          if (h >= n.Hq + n.Hkv || d >= n.R)
            y.push_back(x(d));
          else
            y.push_back(x(d) * std::cos(a) + (d < half ? -x(d + half) : x(d - half)) * std::sin(a));
        }
  };
  add(0, n.Hq);
  add(n.Hq, n.Hkv);
  add(n.Hq + n.Hkv, n.Hkv);
  return y;
}

OpCase split_rope_case(const SplitSizes& n) {
  const Shape all{n.T * n.heads() * n.D};
  return {.name = "split_rope_" + std::to_string(n.T) + "x" + std::to_string(n.Hq) + "x" + std::to_string(n.Hkv) + "x" +
                  std::to_string(n.D) + "_" + std::to_string(n.R),
          .inputs = {{"qkv", {n.T, n.heads() * n.D}}},
          .forward =
              [=](Ctx& ctx, DType d, Arrays& in) {
                SplitTables tables(n, d);
                Arrays out{Array(d, all)};
                const SplitResults to(n, out[0]);
                ops::split_rope(ctx, {.q = to.q,
                                      .k = to.k,
                                      .v = to.v,
                                      .qkv = in[0],
                                      .cos = tables.cos,
                                      .sin = tables.sin,
                                      .positions = tables.positions});
                return out;
              },
          .formula = [=](const Arrays& in) { return split_rope_formula(n, in[0]); },
          .backward =
              [=](Ctx& ctx, DType d, const OpCase::Backward& b) {
                SplitTables tables(n, d);
                const SplitResults dy(n, b.dy);
                ops::split_rope_grad(ctx, {.dqkv = b.gradients[0],
                                           .dq = dy.q,
                                           .dk = dy.k,
                                           .dv = dy.v,
                                           .cos = tables.cos,
                                           .sin = tables.sin,
                                           .positions = tables.positions});
              }};
}

/// The queries, keys or values of all tokens in qkv [T, (Hq + 2 Hkv) D]: heads [T, H, D] from head `first` on.
Tensor heads_in(const SplitSizes& n, Tensor qkv, std::int64_t first, std::int64_t count) {
  if (qkv.data) qkv.data += static_cast<std::size_t>(first * n.D) * size_of(qkv.dtype);
  qkv.shape = {n.T, count, n.D};
  return qkv;
}

constexpr double kJoinedEps = 1e-6, kJoinedOffset = 0.5;

// Divides every head of queries and keys by its RMS and multiplies it by the weights.
Array with_head_norms(const SplitSizes& n, const Arrays& in) {
  Array qkv = in[0];
  for (std::int64_t i = 0; i < n.T * n.heads(); ++i) {
    const std::int64_t head = i % n.heads();
    if (head >= n.Hq + n.Hkv) continue;
    double squares = 0;
    for (std::int64_t d = 0; d < n.D; ++d) squares += in[0].get(i * n.D + d) * in[0].get(i * n.D + d);
    const double inv = 1 / std::sqrt(squares / static_cast<double>(n.D) + kJoinedEps);
    for (std::int64_t d = 0; d < n.D; ++d)
      qkv.set(i * n.D + d, in[0].get(i * n.D + d) * inv * (in[head < n.Hq ? 1 : 2].get(d) + kJoinedOffset));
  }
  return qkv;
}

// Rope of queries, keys and values that are columns of one matrix.
OpCase joined_rope_case(const SplitSizes& n, bool norm) {
  const Shape all{n.T * n.heads() * n.D};
  std::vector<Input> inputs{{"qkv", {n.T, n.heads() * n.D}}};
  if (norm) inputs.push_back({"q_norm", {n.D}, Storage::arithmetic});
  if (norm) inputs.push_back({"k_norm", {n.D}, Storage::arithmetic});
  return {.name = std::string(norm ? "normed_" : "") + "joined_rope" + shape_name({n.T, n.Hq, n.Hkv, n.D}),
          .inputs = inputs,
          .forward =
              [=](Ctx& ctx, DType d, Arrays& in) {
                SplitTables tables(n, d);
                Arrays out{Array(d, all)};
                out.emplace_back(arithmetic_of(d), Shape{n.T, n.Hq});
                out.emplace_back(arithmetic_of(d), Shape{n.T, n.Hkv});
                const SplitResults y(n, out[0]);
                ops::Rope a{.q = {.y = y.q, .x = heads_in(n, in[0], 0, n.Hq)},
                            .k = {.y = y.k, .x = heads_in(n, in[0], n.Hq, n.Hkv)},
                            .v = {.y = y.v, .x = heads_in(n, in[0], n.Hq + n.Hkv, n.Hkv)},
                            .cos = tables.cos,
                            .sin = tables.sin,
                            .positions = tables.positions,
                            .eps = kJoinedEps,
                            .weight_offset = kJoinedOffset,
                            .x_stride = n.heads() * n.D};
                if (norm) a.q.weight = in[1], a.q.inv_rms = out[1], a.k.weight = in[2], a.k.inv_rms = out[2];
                ops::rope(ctx, a);
                return out;
              },
          .formula = [=](const Arrays& in) { return split_rope_formula(n, norm ? with_head_norms(n, in) : in[0]); },
          .backward =
              [=](Ctx& ctx, DType d, const OpCase::Backward& b) {
                SplitTables tables(n, d);
                const SplitResults dy(n, b.dy);
                const Sink& to = b.gradients[0];
                const auto part = [&](std::int64_t first, Tensor dy_part) {
                  const std::int64_t count = dy_part.shape[1];
                  return ops::RopeGrad::Heads{.dx = {heads_in(n, to.t, first, count), to.mode},
                                              .dy = dy_part,
                                              .x = heads_in(n, b.inputs[0], first, count)};
                };
                ops::RopeGrad a{.q = part(0, dy.q),
                                .k = part(n.Hq, dy.k),
                                .v = part(n.Hq + n.Hkv, dy.v),
                                .cos = tables.cos,
                                .sin = tables.sin,
                                .positions = tables.positions,
                                .weight_offset = kJoinedOffset,
                                .x_stride = n.heads() * n.D};
                for (std::size_t i = 0; norm && i < 2; ++i) {
                  ops::RopeGrad::Heads& heads = i == 0 ? a.q : a.k;
                  heads.weight = b.inputs[1 + i];
                  heads.inv_rms = b.outputs[1 + i];
                  heads.dweight = b.gradients[1 + i];
                }
                ops::rope_grad(ctx, a);
              }};
}

}  // namespace

std::vector<OpCase> with_packed_cases(std::vector<OpCase> cases) {
  const auto pairs = ops::GluOrder::pairs;
  for (const PackedForm& form :
       {PackedForm{"silu"}, PackedForm{"gelu", {}, ops::Activation::gelu_tanh},
        PackedForm{"clamped", pairs, {}, 1.702, 0.7512}, PackedForm{"pairs", pairs, {}, 1.702, 7}})
    for (const Shape& s : {Shape{1, 1}, Shape{7, 11}, Shape{33, 1536}, Shape{5, 531}})
      cases.push_back(packed_glu_case(s[0], s[1], form));
  for (const SplitSizes& n : {SplitSizes{1, 1, 1, 2, 2}, SplitSizes{9, 3, 1, 10, 6}, SplitSizes{40, 4, 2, 64, 64},
                              SplitSizes{13, 6, 2, 128, 96}, SplitSizes{5, 2, 2, 96, 72}})
    cases.push_back(split_rope_case(n));
  for (const SplitSizes& n : {SplitSizes{1, 1, 1, 2, 2}, SplitSizes{9, 3, 1, 10, 10}, SplitSizes{37, 14, 2, 64, 64},
                              SplitSizes{5, 6, 2, 90, 90}})
    for (const bool norm : {false, true}) cases.push_back(joined_rope_case(n, norm));
  return cases;
}

}  // namespace qtrain::testing
