#include "kernels/grouped_gemm.h"

#include <memory>
#include <vector>

#include "kernels/cpu/loops.h"

namespace qtrain::ops {
namespace {

/// Single-threaded contexts, for threads that each compute GEMMs of their own.
class LoneContexts {
 public:
  explicit LoneContexts(Device) {}

  void prepare(int threads, MatmulPrecision matmul) {
    if (!contexts_.empty() && contexts_[0]->matmul() != matmul) contexts_.clear();
    while (static_cast<int>(contexts_.size()) < threads)
      contexts_.push_back(std::make_unique<Ctx>(Device{}, matmul, 1));
  }
  Ctx& of(int worker) { return *contexts_[static_cast<std::size_t>(worker)]; }

 private:
  std::vector<std::unique_ptr<Ctx>> contexts_;
};

/// Rows of a GEMM per task: enough to amortize packing the matrix.
constexpr std::int64_t kTaskRows = 256;

/// Many GEMMs run concurrently, one thread each; few run one after another with all threads. A row has the same bits in
/// any chunk, so the results are the same.
void run_gemms(Ctx& ctx, const std::vector<Gemm>& gemms) {
  constexpr std::int64_t kTasksPerThread = 3;
  const int threads = ctx.pool().size();
  const auto n = static_cast<std::int64_t>(gemms.size());
  if (threads == 1 || n < kTasksPerThread * threads) {
    for (const Gemm& g : gemms) run_cpu(ctx, g);
    return;
  }
  auto& contexts = ctx.kept<LoneContexts>();
  contexts.prepare(threads, ctx.matmul());
  ctx.pool().run(n,
                 [&](std::int64_t i, int worker) { run_cpu(contexts.of(worker), gemms[static_cast<std::size_t>(i)]); });
}

/// Calls f(e, first, last) with the rows of each expert.
template <class F>
void for_experts(ConstTensor offsets, std::int64_t rows, const F& f) {
  const auto at = offsets.span<std::int32_t>();
  for (std::size_t e = 0; e + 1 < at.size(); ++e) {
    check(at[e] >= 0 && at[e] <= at[e + 1] && at[e + 1] <= rows, "grouped_gemm: offsets do not rise within the rows");
    f(static_cast<std::int64_t>(e), at[e], at[e + 1]);
  }
}

/// Rows or columns of a matrix whose rows are `step` elements apart.
struct Part {
  std::int64_t row, rows, column, columns, step;
};
template <class Byte>
View<Byte> part_of(View<Byte> matrix, const Part& p) {
  if (matrix.data) matrix.data += static_cast<std::size_t>(p.row * p.step + p.column) * size_of(matrix.dtype);
  matrix.shape = {p.rows, p.columns};
  return matrix;
}
template <class Byte>
View<Byte> expert_matrix(const View<Byte>& all, std::int64_t e) {
  return all.slice(e, 1).reshaped({all.shape[1], all.shape[2]});
}

}  // namespace

void run_cpu(Ctx& ctx, const GroupedGemm& a) {
  const std::int64_t a_step = row_step(a.a, a.a_stride), c_step = row_step(a.c.t, a.c_stride);
  std::vector<Gemm> gemms;
  for_experts(a.offsets, a.a.shape[0], [&](std::int64_t e, std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; row += kTaskRows) {
      const std::int64_t rows = std::min(kTaskRows, last - row);
      gemms.push_back({.c = {part_of(a.c.t, {row, rows, 0, a.c.t.shape[1], c_step}), a.c.mode},
                       .a = part_of(a.a, {row, rows, 0, a.a.shape[1], a_step}),
                       .b = expert_matrix(a.b, e),
                       .transpose_b = a.transpose_b,
                       .alpha = a.alpha,
                       .a_stride = a_step,
                       .c_stride = c_step});
    }
  });
  run_gemms(ctx, gemms);
}

void run_cpu(Ctx& ctx, const GroupedGemmGrad& a) {
  const std::int64_t a_step = row_step(a.a, a.a_stride), b_step = row_step(a.b, a.b_stride), M = a.a.shape[1];
  std::vector<Gemm> gemms;
  for_experts(a.offsets, a.a.shape[0], [&](std::int64_t e, std::int64_t first, std::int64_t last) {
    const std::int64_t rows = last - first;
    if (rows == 0 && a.c.adds()) return;
    for (std::int64_t m = 0; m < M; m += kTaskRows) {
      const std::int64_t height = std::min(kTaskRows, M - m);
      gemms.push_back({.c = {expert_matrix(a.c.t, e).slice(m, height), a.c.mode},
                       .a = part_of(a.a, {first, rows, m, height, a_step}),
                       .b = part_of(a.b, {first, rows, 0, a.b.shape[1], b_step}),
                       .transpose_a = Transpose::yes,
                       .alpha = a.alpha,
                       .a_stride = a_step,
                       .b_stride = b_step});
    }
  });
  run_gemms(ctx, gemms);
}

}  // namespace qtrain::ops
