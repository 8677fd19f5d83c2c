#include "kernels/muon.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/reduce.h"
#include "optim/rules.h"

namespace qtrain {
namespace {

constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;  // coefficients of the quintic iteration
constexpr double kEps = 1e-7;
constexpr std::string_view kAdjustments[] = {"original", "match_rms_adamw", "spectral_unclamped"};

/// True for matrices inside the model, including those of experts. Embeddings, the head and vectors use AdamW, as do
/// biases of experts [E, features].
bool is_orthogonal(const ParamSpec& param) {
  return param.shape.rank >= 2 && param.role == Role::weight;
}
/// The shape of a parameter, or of one expert's matrix in [E, out, in].
Shape matrix_shape(const Shape& s) {
  return s.rank == 3 ? Shape{s[1], s[2]} : s;
}

/// Memory for the iteration on a matrix [R, C], with k = min(R, C): X and the GEMM results in torch's dtypes, and an
/// f32 sum before rounding.
struct Work {
  Tensor x, gram, polynomial;  ///< bf16 [R, C], [k, k], [k, k]
  Tensor sum;                  ///< f32 [R, C] or [k, k]
  Tensor squares;              ///< f64 [1]

  static std::size_t bytes(const Shape& s) {
    Work work({}, s);
    return work.used_;
  }
  Work(Tensor memory, const Shape& s) : memory_(memory) {
    const std::int64_t k = std::min(s[0], s[1]);
    squares = take(DType::f64, {1});
    sum = take(DType::f32, s);
    x = take(DType::bf16, s);
    gram = take(DType::bf16, {k, k});
    polynomial = take(DType::bf16, {k, k});
  }
  /// f32 [k, k] in the memory of `sum`
  Tensor square_sum() const {
    Tensor t = sum;
    t.shape = gram.shape;
    return t;
  }

 private:
  Tensor take(DType dtype, Shape shape) {
    constexpr std::size_t kAlign = 256;
    const Tensor t{memory_.data ? memory_.data + used_ : nullptr, dtype, shape, memory_.device};
    used_ += (t.bytes() + kAlign - 1) / kAlign * kAlign;
    return t;
  }
  Tensor memory_;
  std::size_t used_ = 0;
};

/// to = beta x + alpha a b, summed in f32 and rounded once.
struct AddedGemm {
  Tensor to, sum;
  ConstTensor x, a, b;
  double beta, alpha;
};
void add_gemm(Ctx& ctx, const AddedGemm& p) {
  ops::scaled_copy(ctx, {.y = p.sum, .x = p.x, .alpha = p.beta});
  ops::gemm(ctx, {.c = accumulate(p.sum), .a = p.a, .b = p.b, .alpha = p.alpha});
  ops::copy(ctx, {.y = store(p.to), .x = p.sum});
}

/// X = aX + (bG + cG^2) X with G = X X^T for a wide matrix; for a tall one G = X^T X and it multiplies from the right.
void iterate(Ctx& ctx, const Work& w) {
  const bool wide = w.x.shape[0] <= w.x.shape[1];
  ops::gemm(ctx, {.c = store(w.gram),
                  .a = w.x,
                  .b = w.x,
                  .transpose_a = wide ? ops::Transpose::no : ops::Transpose::yes,
                  .transpose_b = wide ? ops::Transpose::yes : ops::Transpose::no});
  add_gemm(ctx,
           {.to = w.polynomial, .sum = w.square_sum(), .x = w.gram, .a = w.gram, .b = w.gram, .beta = kB, .alpha = kC});
  const Tensor &left = wide ? w.polynomial : w.x, &right = wide ? w.x : w.polynomial;
  add_gemm(ctx, {.to = w.x, .sum = w.sum, .x = w.x, .a = left, .b = right, .beta = kA, .alpha = 1});
}

/// torch.optim.Muon for matrices inside the model, AdamW for everything else, with the same learning rate.
class Muon final : public UpdateRule {
 public:
  Muon(const OptimizerOptions& options, const OptimizerArguments& arguments)
      : UpdateRule(options.weight_decay),
        adamw_(make_adamw(options, {})),
        momentum_(arguments.number("momentum", 0.95)),
        nesterov_(arguments.flag("nesterov", true) ? ops::Nesterov::yes : ops::Nesterov::no),
        adjustment_(arguments.choice("adjust_lr_fn", kAdjustments)) {
    constexpr double kMax = 99;
    const double steps = arguments.number("ns_steps", 5);
    if (steps != std::floor(steps) || steps > kMax)
      fail(ErrorKind::usage, {.cause = "\"ns_steps\" is not a whole number from 0 to 99",
                              .place = "optim_args",
                              .remedy = "the usual value is 5"});
    steps_ = static_cast<int>(steps);
  }

  std::vector<StateSpec> state_of(const ParamSpec& param) const override {
    if (!is_orthogonal(param)) return adamw_->state_of(param);
    check(param.dtype == DType::f32, "muon: parameters are f32");
    return {{.name = "momentum_buffer", .shape = param.shape}};
  }
  std::array<double, 4> hyperparameters(double learning_rate, std::int64_t t) const override {
    return adamw_->hyperparameters(learning_rate, t);
  }
  std::int64_t block_size(const ParamSpec& param) const override {
    return is_orthogonal(param) ? 0 : adamw_->block_size(param);
  }
  void update(Ctx& ctx, const UpdatePart& part) const override {
    if (!is_orthogonal(part.spec)) return adamw_->update(ctx, part);
    each_matrix(part, [&](const UpdatePart& matrix) { update_matrix(ctx, matrix); });
  }
  Cut cut(const ParamSpec& param) const override { return is_orthogonal(param) ? Cut::never : adamw_->cut(param); }
  std::size_t work_bytes(std::span<Param* const> params) const override {
    std::size_t largest = 0;
    for (const Param* p : params)
      if (is_orthogonal(p->spec)) largest = std::max(largest, Work::bytes(matrix_shape(p->spec.shape)));
    return largest;
  }
  void prepare(Ctx&, Tensor work) override { memory_ = work; }

 private:
  void update_matrix(Ctx& ctx, const UpdatePart& part) const {
    const Work w(memory_, part.param.shape);
    ops::muon_momentum(ctx, {.momentum_buffer = part.state[0],
                             .y = w.x,
                             .grad = part.grad,
                             .factor = part.factor,
                             .momentum = momentum_,
                             .nesterov = nesterov_});
    ops::sum_squares(ctx, {.out = store(w.squares), .x = w.x});
    ops::muon_normalize(ctx, {.x = w.x, .squares = w.squares, .eps = kEps});
    for (int i = 0; i < steps_; ++i) iterate(ctx, w);
    ops::muon_apply(ctx, {.param = part.param,
                          .x = w.x,
                          .hyperparameters = part.hyperparameters,
                          .factor = part.factor,
                          .scale = adjusted(part.param.shape),
                          .decay = decay(part.spec)});
  }
  /// The factor on the learning rate for a matrix of this shape.
  double adjusted(const Shape& s) const {
    const auto rows = static_cast<double>(s[0]), columns = static_cast<double>(s[1]);
    if (adjustment_ == "match_rms_adamw") return 0.2 * std::sqrt(std::max(rows, columns));
    const double ratio = rows / columns;
    return std::sqrt(adjustment_ == "original" ? std::max(1.0, ratio) : ratio);
  }

  std::unique_ptr<UpdateRule> adamw_;
  double momentum_;
  ops::Nesterov nesterov_;
  std::string_view adjustment_;
  int steps_ = 0;
  Tensor memory_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_muon(const OptimizerOptions& options, const OptimizerArguments& arguments) {
  return std::make_unique<Muon>(options, arguments);
}

}  // namespace qtrain
