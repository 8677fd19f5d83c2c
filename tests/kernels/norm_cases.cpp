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

OpCase rope_case(Shape shape) {
  return {.name = "rope" + shape_name(shape),
          .inputs = {{"x", shape}},
          .forward =
              [shape](Ctx& ctx, DType d, Arrays& in) {
                Arrays tables = rope_tables(d, 7, shape[2] / 2), out{Array(d, shape)};
                Array positions = rope_positions(shape[0]);
                ops::rope(ctx, {.y = out[0], .x = in[0], .cos = tables[0], .sin = tables[1], .positions = positions});
                return out;
              },
          .formula = [shape](const Arrays& in) { return rope_formula(in[0].values(), shape); },
          .backward =
              [shape](Ctx& ctx, DType d, const OpCase::Backward& b) {
                Arrays tables = rope_tables(d, 7, shape[2] / 2);
                Array positions = rope_positions(shape[0]);
                ops::rope_grad(
                    ctx,
                    {.dx = b.gradients[0], .dy = b.dy, .cos = tables[0], .sin = tables[1], .positions = positions});
              }};
}

OpCase normed_rope_case(Shape shape, double offset) {
  return {.name = "normed_rope" + offset_name(offset) + shape_name(shape),
          .inputs = {{"x", shape}, {"weight", {shape[2]}, Storage::arithmetic}},
          .forward =
              [=](Ctx& ctx, DType d, Arrays& in) {
                Arrays tables = rope_tables(d, 7, shape[2] / 2);
                Arrays out{Array(d, shape), Array(arithmetic_of(d), {shape[0], shape[1]})};
                Array positions = rope_positions(shape[0]);
                ops::rope(ctx, {.y = out[0],
                                .x = in[0],
                                .cos = tables[0],
                                .sin = tables[1],
                                .positions = positions,
                                .weight = in[1],
                                .inv_rms = out[1],
                                .eps = 1e-6,
                                .weight_offset = offset});
                return out;
              },
          .formula =
              [=](const Arrays& in) {
                return rope_formula(rms_norm_formula(in[0].values(), in[1].values(), offset), shape);
              },
          .backward =
              [=](Ctx& ctx, DType d, const OpCase::Backward& b) {
                Arrays tables = rope_tables(d, 7, shape[2] / 2);
                Array positions = rope_positions(shape[0]);
                ops::rope_grad(ctx, {.dx = b.gradients[0],
                                     .dy = b.dy,
                                     .cos = tables[0],
                                     .sin = tables[1],
                                     .positions = positions,
                                     .x = b.inputs[0],
                                     .weight = b.inputs[1],
                                     .inv_rms = b.outputs[1],
                                     .dweight = b.gradients[1],
                                     .weight_offset = offset});
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
  for (const Shape& s : {Shape{1, 1}, Shape{5, 7}, Shape{3, 2, 80}, Shape{70, 576}, Shape{33, 1032}})
    for (const double offset : {0.0, 1.0}) cases.push_back(rms_norm_case(s, offset));
  for (const Shape& s : {Shape{1, 1, 2}, Shape{9, 3, 10}, Shape{40, 9, 64}, Shape{13, 5, 90}}) {
    cases.push_back(rope_case(s));
    for (const double offset : {0.0, 1.0}) cases.push_back(normed_rope_case(s, offset));
  }
  for (const Shape& s : {Shape{1, 1}, Shape{70, 576}}) cases.push_back(magnitude_case(s, 0));
  cases.push_back(magnitude_case({37, 19}, -1));
  return cases;
}

}  // namespace qtrain::testing
