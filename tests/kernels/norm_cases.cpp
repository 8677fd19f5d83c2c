#include "kernels/magnitude.h"
#include "kernels/reduce.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "tests/kernels/op_cases.h"

namespace qtrain::testing {
namespace {

using Values = std::vector<double>;

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

Values rms_norm_formula(const Values& x, const Values& weight, double offset) {
  const std::size_t C = weight.size();
  Values y(x.size());
  for (std::size_t r = 0; r < x.size(); r += C) {
    double squares = 0;
    for (std::size_t c = 0; c < C; ++c) squares += x[r + c] * x[r + c];
    for (std::size_t c = 0; c < C; ++c)
      y[r + c] = x[r + c] / std::sqrt(squares / static_cast<double>(C) + 1e-6) * (weight[c] + offset);
  }
  return y;
}

std::string offset_name(double offset) {
  return offset == 0 ? "" : "_offset";
}

OpCase rms_norm_case(Shape shape, double offset) {
  return {
      .name = "rms_norm" + offset_name(offset) + shape_name(shape),
      .inputs = {{"x", shape}, {"weight", {shape[-1]}, Storage::arithmetic}},
      .forward =
          [=](Ctx& ctx, DType d, Arrays& in) {
            Arrays out{Array(d, shape), Array(arithmetic_of(d), {shape.rows()})};
            ops::rms_norm(
                ctx,
                {.y = out[0], .inv_rms = out[1], .x = in[0], .weight = in[1], .eps = 1e-6, .weight_offset = offset});
            return out;
          },
      .formula = [=](const Arrays& in) { return rms_norm_formula(in[0].values(), in[1].values(), offset); },
      .backward =
          [=](Ctx& ctx, DType, const OpCase::Backward& b) {
            ops::rms_norm_grad(ctx, {.dx = b.gradients[0],
                                     .dweight = b.gradients[1],
                                     .dy = b.dy,
                                     .x = b.inputs[0],
                                     .weight = b.inputs[1],
                                     .inv_rms = b.outputs[1],
                                     .weight_offset = offset});
          }};
}

/// cos and sin of a table with `count` positions.
Arrays rope_tables(DType d, std::int64_t count, std::int64_t half) {
  Arrays tables{Array(arithmetic_of(d), {count, half}), Array(arithmetic_of(d), {count, half})};
  for (std::int64_t p = 0; p < count; ++p)
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(p) * std::pow(100.0, -static_cast<double>(i) / static_cast<double>(half));
      tables[0].set(p * half + i, std::cos(angle));
      tables[1].set(p * half + i, std::sin(angle));
    }
  return tables;
}

Array rope_positions(std::int64_t T) {
  std::vector<std::int32_t> p;
  for (std::int64_t t = 0; t < T; ++t) p.push_back(static_cast<std::int32_t>(t * 5 % 7));
  return integers(p);
}

Values rope_formula(Values x, const Shape& s) {
  const std::int64_t half = s[2] / 2;
  Arrays tables = rope_tables(DType::f64, 7, half);
  for (std::int64_t t = 0; t < s[0]; ++t)
    for (std::int64_t h = 0; h < s[1]; ++h)
      for (std::int64_t i = 0; i < half; ++i) {
        const std::int64_t first = (t * s[1] + h) * s[2] + i, row = t * 5 % 7 * half + i;
        const double a = x[at(first)], b = x[at(first + half)], c = tables[0].get(row), sn = tables[1].get(row);
        x[at(first)] = a * c - b * sn;
        x[at(first + half)] = a * sn + b * c;
      }
  return x;
}

struct RopeSizes {
  std::int64_t T, Hq, Hk, D;
  bool norm = false;
  double offset = 0;

  Shape queries() const { return {T, Hq, D}; }
  Shape keys() const { return {T, Hk, D}; }
};

/// One array as queries and keys, one after the other; no keys if there are no heads of keys.
struct QueriesAndKeys {
  Tensor q, k;

  QueriesAndKeys(const RopeSizes& n, const Tensor& all) : q(all.slice(0, n.queries().numel()).reshaped(n.queries())) {
    if (n.Hk > 0) k = all.slice(n.queries().numel(), n.keys().numel()).reshaped(n.keys());
  }
};

// Inputs: q, then k if there are keys, then the norm's weight of each.
OpCase rope_case(const RopeSizes& n) {
  const bool keys = n.Hk > 0;
  std::vector<Input> inputs{{"q", n.queries()}};
  if (keys) inputs.push_back({"k", n.keys()});
  const std::size_t weights = inputs.size();
  if (n.norm) inputs.push_back({"q_norm", {n.D}, Storage::arithmetic});
  if (n.norm && keys) inputs.push_back({"k_norm", {n.D}, Storage::arithmetic});
  const Shape all{n.queries().numel() + n.keys().numel()};
  return {.name = (n.norm ? "normed_rope" + offset_name(n.offset) : "rope") + shape_name(n.queries()) +
                  (keys ? "_keys" + std::to_string(n.Hk) : ""),
          .inputs = inputs,
          .forward =
              [=](Ctx& ctx, DType d, Arrays& in) {
                Arrays tables = rope_tables(d, 7, n.D / 2), out{Array(d, all)};
                out.emplace_back(arithmetic_of(d), Shape{n.T, n.Hq});
                out.emplace_back(arithmetic_of(d), Shape{n.T, n.Hk});
                Array positions = rope_positions(n.T);
                const QueriesAndKeys y(n, out[0]);
                ops::Rope a{.q = {.y = y.q, .x = in[0]},
                            .cos = tables[0],
                            .sin = tables[1],
                            .positions = positions,
                            .eps = 1e-6,
                            .weight_offset = n.offset};
                if (keys) a.k = {.y = y.k, .x = in[1]};
                if (n.norm) a.q.weight = in[weights], a.q.inv_rms = out[1];
                if (n.norm && keys) a.k.weight = in[weights + 1], a.k.inv_rms = out[2];
                ops::rope(ctx, a);
                return out;
              },
          .formula =
              [=](const Arrays& in) {
                Values y;
                for (std::size_t i = 0; i < weights; ++i) {
                  Values x = in[i].values();
                  if (n.norm) x = rms_norm_formula(x, in[weights + i].values(), n.offset);
                  for (const double v : rope_formula(x, i == 0 ? n.queries() : n.keys())) y.push_back(v);
                }
                return y;
              },
          .backward =
              [=](Ctx& ctx, DType d, const OpCase::Backward& b) {
                Arrays tables = rope_tables(d, 7, n.D / 2);
                Array positions = rope_positions(n.T);
                const QueriesAndKeys dy(n, b.dy);
                ops::RopeGrad a{.q = {.dx = b.gradients[0], .dy = dy.q},
                                .cos = tables[0],
                                .sin = tables[1],
                                .positions = positions,
                                .weight_offset = n.offset};
                if (keys) a.k = {.dx = b.gradients[1], .dy = dy.k};
                for (std::size_t i = 0; n.norm && i < weights; ++i) {
                  ops::RopeGrad::Heads& heads = i == 0 ? a.q : a.k;
                  heads.x = b.inputs[i];
                  heads.weight = b.inputs[weights + i];
                  heads.inv_rms = b.outputs[1 + i];
                  heads.dweight = b.gradients[weights + i];
                }
                ops::rope_grad(ctx, a);
              }};
}

// L2 norms of rows, one of which is 0: a row without direction is scaled to zero.
Array norms_of(DType d, std::int64_t N) {
  Array norm(arithmetic_of(d), {N});
  for (std::int64_t j = 0; j < N; ++j) norm.set(j, N > 2 && j == 1 ? 0 : 0.5 + static_cast<double>(j % 5) / 4);
  return norm;
}

OpCase magnitude_case(Shape shape, double shift) {
  const std::int64_t N = shape[1];
  return {.name = std::string("magnitude") + (shift == 0 ? "" : "_shifted") + shape_name(shape),
          .inputs = {{"x", shape}, {"magnitude", {N}, Storage::arithmetic}, {"bias", {N}, Storage::arithmetic}},
          .forward =
              [=](Ctx& ctx, DType d, Arrays& in) {
                Arrays out{Array(d, shape)};
                Array norm = norms_of(d, N);
                ops::scale_to_magnitude(
                    ctx,
                    {.y = store(out[0]), .x = in[0], .magnitude = in[1], .norm = norm, .bias = in[2], .shift = shift});
                return out;
              },
          .formula =
              [=](const Arrays& in) {
                Values y;
                const Array norm = norms_of(DType::f64, N);
                for (std::int64_t i = 0; i < shape.numel(); ++i) {
                  const std::int64_t j = i % N;
                  const double share = norm.get(j) > 0 ? in[1].get(j) / norm.get(j) : 0;
                  y.push_back((share + shift) * in[0].get(i) + in[2].get(j));
                }
                return y;
              },
          .backward =
              [=](Ctx& ctx, DType d, const OpCase::Backward& b) {
                Array norm = norms_of(d, N);
                if (b.gradients[0].wanted())
                  ops::scale_to_magnitude(
                      ctx, {.y = b.gradients[0], .x = b.dy, .magnitude = b.inputs[1], .norm = norm, .shift = shift});
                ops::magnitude_grad(ctx, {.dmagnitude = b.gradients[1], .dy = b.dy, .v = b.inputs[0], .norm = norm});
                ops::column_sum(ctx, {.y = b.gradients[2], .x = b.dy});
              }};
}

}  // namespace

std::vector<OpCase> norm_cases() {
  std::vector<OpCase> cases;
  for (const Shape& s : {Shape{1, 1}, Shape{5, 7}, Shape{3, 2, 80}, Shape{70, 576}, Shape{33, 1032}, Shape{2, 12288}})
    for (const double offset : {0.0, 1.0}) cases.push_back(rms_norm_case(s, offset));
  for (const RopeSizes& n : {RopeSizes{1, 1, 0, 2}, RopeSizes{9, 3, 1, 10}, RopeSizes{40, 9, 3, 64},
                             RopeSizes{13, 5, 2, 90}, RopeSizes{3, 4, 5, 256}, RopeSizes{2, 1, 1, 512}}) {
    cases.push_back(rope_case(n));
    for (const double offset : {0.0, 1.0}) cases.push_back(rope_case({n.T, n.Hq, n.Hk, n.D, true, offset}));
  }
  for (const Shape& s : {Shape{1, 1}, Shape{70, 576}}) cases.push_back(magnitude_case(s, 0));
  cases.push_back(magnitude_case({37, 19}, -1));
  return cases;
}

}  // namespace qtrain::testing
