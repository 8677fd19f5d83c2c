#include "tests/kernels/op_cases.h"

#include <numbers>

#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/glu.h"
#include "kernels/reduce.h"

namespace qtrain::testing {
namespace {

using Values = std::vector<double>;

double activated(double g, ops::Activation activation) {
  if (activation == ops::Activation::silu) return g / (1 + std::exp(-g));
  return 0.5 * g * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (g + 0.044715 * g * g * g)));
}

OpCase glu_case(Shape shape, ops::Activation activation) {
  return {.name = (activation == ops::Activation::silu ? "swiglu" : "geglu") + shape_name(shape),
          .inputs = {{"gate", shape}, {"up", shape}},
          .forward =
              [=](Ctx& ctx, DType d, Arrays& in) {
                Arrays out{Array(d, shape)};
                ops::glu(ctx, {.y = out[0], .gate = in[0], .up = in[1], .activation = activation});
                return out;
              },
          .formula =
              [=](const Arrays& in) {
                Values y = in[0].values();
                for (std::size_t i = 0; i < y.size(); ++i)
                  y[i] = activated(y[i], activation) * in[1].get(static_cast<std::int64_t>(i));
                return y;
              },
          .backward =
              [=](Ctx& ctx, DType, const OpCase::Backward& b) {
                ops::glu_grad(ctx, {.dgate = b.gradients[0],
                                    .dup = b.gradients[1],
                                    .dy = b.dy,
                                    .gate = b.inputs[0],
                                    .up = b.inputs[1],
                                    .activation = activation});
              }};
}

Array some_targets(std::int64_t n, std::int64_t V) {
  std::vector<std::int32_t> t;
  for (std::int64_t i = 0; i < n; ++i) t.push_back(static_cast<std::int32_t>(i == 1 ? V - 1 : i * 7919 % V));
  if (n > 2) t[2] = ops::kNoClass;
  return integers(t);
}

/// The transformation of logits before the loss, and its label smoothing.
struct LogitForm {
  double scale = 1, softcap = 0, smoothing = 0;

  double operator()(double z) const { return softcap > 0 ? softcap * std::tanh(scale * z / softcap) : scale * z; }
  std::string name() const {
    return std::string(scale == 1 ? "" : "_scaled") + (softcap > 0 ? "_capped" : "") +
           (smoothing > 0 ? "_smoothed" : "");
  }
};

OpCase cross_entropy_case(Shape shape, LogitForm form) {
  return {.name = "cross_entropy" + form.name() + shape_name(shape),
          .inputs = {{"logits", shape}},
          .forward =
              [=](Ctx& ctx, DType d, Arrays& in) {
                Arrays out{Array(arithmetic_of(d), {shape[0]})};
                Array targets = some_targets(shape[0], shape[1]);
                ops::cross_entropy(ctx, {.logits = in[0],
                                         .loss = out[0],
                                         .targets = targets,
                                         .form = {.smoothing = form.smoothing},
                                         .logit_scale = form.scale,
                                         .softcap = form.softcap});
                return out;
              },
          .formula =
              [=](const Arrays& in) {
                Array targets = some_targets(shape[0], shape[1]);
                Values loss;
                for (std::int64_t r = 0; r < shape[0]; ++r) {
                  const auto z = [&](std::int64_t c) { return form(in[0].get(r * shape[1] + c)); };
                  double sum = 0, smooth = 0;  // smooth: the sum of z, in which each class has the same weight
                  for (std::int64_t c = 0; c < shape[1]; ++c) sum += std::exp(z(c)), smooth += z(c);
                  const std::int32_t target = targets.tensor().as<std::int32_t>()[r];
                  const double hit = target == ops::kNoClass ? 0 : (1 - form.smoothing) * z(target);
                  const double even = form.smoothing * smooth / static_cast<double>(shape[1]);
                  loss.push_back(target == ops::kNoClass ? 0 : std::log(sum) - hit - even);
                }
                return loss;
              },
          .backward =
              [=](Ctx& ctx, DType d, const OpCase::Backward& b) {
                Array loss(arithmetic_of(d), {shape[0]}), scale = scalars({b.dy.get(0)}), logits = b.inputs[0];
                Array targets = some_targets(shape[0], shape[1]);
                ops::cross_entropy(ctx, {.logits = logits,
                                         .loss = loss,
                                         .targets = targets,
                                         .form = {.smoothing = form.smoothing},
                                         .gradient = ops::Gradient::in_place,
                                         .scale = scale,
                                         .logit_scale = form.scale,
                                         .softcap = form.softcap});
                ops::copy(ctx, {.y = b.gradients[0], .x = logits});
              },
          .equal_dy = true};
}

Array some_tokens(std::int64_t T, std::int64_t V) {
  std::vector<std::int32_t> t;
  for (std::int64_t i = 0; i < T; ++i) t.push_back(static_cast<std::int32_t>(i * i % V));
  return integers(t);
}

struct EmbeddingSizes {
  std::int64_t T, V, C;
};
OpCase embedding_case(EmbeddingSizes n, double scale) {
  return {.name = std::string("embedding") + (scale == 1 ? "" : "_scaled") + shape_name({n.T, n.V, n.C}),
          .inputs = {{"table", {n.V, n.C}}},
          .forward =
              [=](Ctx& ctx, DType d, Arrays& in) {
                Arrays out{Array(d, {n.T, n.C})};
                Array tokens = some_tokens(n.T, n.V);
                ops::embedding(ctx, {.y = out[0], .table = in[0], .tokens = tokens, .scale = scale});
                return out;
              },
          .formula =
              [=](const Arrays& in) {
                Values y;
                for (std::int64_t t = 0; t < n.T; ++t)
                  for (std::int64_t c = 0; c < n.C; ++c) y.push_back(scale * in[0].get(t * t % n.V * n.C + c));
                return y;
              },
          .backward =
              [=](Ctx& ctx, DType, const OpCase::Backward& b) {
                Array tokens = some_tokens(n.T, n.V);
                ops::embedding_grad(ctx, {.dtable = b.gradients[0], .dy = b.dy, .tokens = tokens, .scale = scale});
              }};
}

OpCase add_case(Shape shape, double scale) {
  return {.name = "add" + shape_name(shape),
          .inputs = {{"a", shape}, {"b", shape}},
          .forward =
              [=](Ctx& ctx, DType d, Arrays& in) {
                Arrays out{Array(d, shape)};
                ops::add(ctx, {.y = out[0], .a = in[0], .b = in[1], .scale = scale});
                return out;
              },
          .formula =
              [=](const Arrays& in) {
                Values y = in[0].values();
                for (std::size_t i = 0; i < y.size(); ++i) y[i] += scale * in[1].get(static_cast<std::int64_t>(i));
                return y;
              },
          .backward =
              [=](Ctx& ctx, DType, const OpCase::Backward& b) {
                ops::copy(ctx, {.y = b.gradients[0], .x = b.dy});
                ops::copy(ctx, {.y = b.gradients[1], .x = b.dy, .scale = scale});
              }};
}

/// Gathers rows 0, none, none, 3, none, none, 6, ... of x [T, C]; the gradient scatters.
OpCase gather_rows_case(std::int64_t T, std::int64_t C) {
  const auto rows = [T] {
    std::vector<std::int32_t> r;
    for (std::int64_t i = 0; i < T; ++i) r.push_back(i % 3 == 0 ? static_cast<std::int32_t>(i) : ops::kNoRow);
    return integers(r);
  };
  return {.name = "gather_rows" + shape_name({T, C}),
          .inputs = {{"x", {T, C}}},
          .forward =
              [=](Ctx& ctx, DType d, Arrays& in) {
                Array r = rows();
                Arrays out{Array(d, {r.size(), C})};
                ops::gather_rows(ctx, {.y = out[0], .x = in[0], .rows = r});
                return out;
              },
          .formula =
              [=](const Arrays& in) {
                Values y;
                for (std::int64_t i = 0; i < T; ++i)
                  for (std::int64_t c = 0; c < C; ++c) y.push_back(i % 3 == 0 ? in[0].get(i * C + c) : 0);
                return y;
              },
          .backward =
              [=](Ctx& ctx, DType, const OpCase::Backward& b) {
                Array r = rows();
                ops::scatter_rows(ctx, {.y = b.gradients[0], .x = b.dy, .rows = r});
              }};
}

OpCase gemm_case() {
  return {.name = "gemm_bias",
          .inputs = {{"x", {19, 23}}, {"weight", {11, 23}}, {"bias", {11}}},
          .forward =
              [](Ctx& ctx, DType d, Arrays& in) {
                Arrays out{Array(d, {19, 11})};
                ops::gemm(
                    ctx,
                    {.c = store(out[0]), .a = in[0], .b = in[1], .transpose_b = ops::Transpose::yes, .bias = in[2]});
                return out;
              },
          .formula =
              [](const Arrays& in) {
                Values y;
                for (std::int64_t i = 0; i < 19; ++i)
                  for (std::int64_t j = 0; j < 11; ++j) {
                    y.push_back(in[2].get(j));
                    for (std::int64_t k = 0; k < 23; ++k) y.back() += in[0].get(i * 23 + k) * in[1].get(j * 23 + k);
                  }
                return y;
              },
          .backward =
              [](Ctx& ctx, DType, const OpCase::Backward& b) {
                ops::gemm(ctx, {.c = b.gradients[0], .a = b.dy, .b = b.inputs[1]});
                ops::gemm(ctx, {.c = b.gradients[1], .a = b.dy, .b = b.inputs[0], .transpose_a = ops::Transpose::yes});
                ops::column_sum(ctx, {.y = b.gradients[2], .x = b.dy});
              }};
}

}  // namespace

std::string shape_name(const Shape& s) {
  std::string name;
  for (int i = 0; i < s.rank; ++i) name += (i ? "x" : "_") + std::to_string(s[i]);
  return name;
}

namespace {

std::vector<OpCase> make_op_cases() {
  std::vector<OpCase> cases{gemm_case()};
  for (const Shape& s : {Shape{1, 1}, Shape{7, 11}, Shape{33, 1536}, Shape{5, 1531}})
    for (const auto activation : {ops::Activation::silu, ops::Activation::gelu_tanh})
      cases.push_back(glu_case(s, activation));
  for (const Shape& s : {Shape{1, 1}, Shape{5, 3}, Shape{6, 2051}, Shape{6, 2056}, Shape{3, 151936}})
    cases.push_back(cross_entropy_case(s, {}));
  cases.push_back(cross_entropy_case({6, 2051}, {.softcap = 1.5}));
  cases.push_back(cross_entropy_case({5, 3}, {.scale = 0.125}));
  cases.push_back(cross_entropy_case({4, 4104}, {.scale = 2.5, .softcap = 4}));
  cases.push_back(cross_entropy_case({6, 2051}, {.smoothing = 0.1}));
  cases.push_back(cross_entropy_case({5, 3}, {.scale = 0.125, .smoothing = 0.25}));
  cases.push_back(cross_entropy_case({4, 4104}, {.scale = 2.5, .softcap = 4, .smoothing = 0.1}));
  for (const EmbeddingSizes& n : {EmbeddingSizes{1, 1, 1}, EmbeddingSizes{60, 9, 7}, EmbeddingSizes{200, 40, 1032}})
    cases.push_back(embedding_case(n, 1));
  cases.push_back(embedding_case({60, 9, 7}, 12.0625));
  cases.push_back(embedding_case({50, 40, 1032}, 0.375));
  cases.push_back(add_case({3, 5}, 0.22));
  cases.push_back(add_case({7, 1032}, 0.22));
  for (const Shape& s : {Shape{1, 3}, Shape{50, 77}}) cases.push_back(gather_rows_case(s[0], s[1]));
  for (auto more : {norm_cases, attention_cases})
    for (OpCase& c : more()) cases.push_back(std::move(c));
  return with_expert_cases(with_packed_cases(std::move(cases)));
}

}  // namespace

std::vector<const OpCase*> op_cases() {
  static const std::vector<OpCase> cases = make_op_cases();
  std::vector<const OpCase*> list;
  for (const OpCase& c : cases) list.push_back(&c);
  return list;
}

}  // namespace qtrain::testing
