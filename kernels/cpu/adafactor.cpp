#include "kernels/adafactor.h"

#include "kernels/cpu/loops.h"

namespace qtrain::ops {
namespace {

using simd::Vec;

struct Numbers {
  float scale, rate, keep, b, c, eps;

  explicit Numbers(const Adafactor& a) : scale(static_cast<float>(a.factor.as<double>()[0])) {
    const double lr = a.hyperparameters.as<double>()[0], beta = a.hyperparameters.as<double>()[1];
    rate = static_cast<float>(lr);
    keep = static_cast<float>(1 - lr * a.decay);
    b = static_cast<float>(beta);
    c = static_cast<float>(1 - beta);
    eps = static_cast<float>(a.eps);
  }
};

/// part [C] += the squares of a row of gradients; returns their sum.
float add_row(float* part, const float* g, std::int64_t C, float scale) {
  Vec<float> sum{};
  simd::each<float>(C, [&](std::int64_t i, auto lanes) {
    const Vec<float> v = simd::load<float>(g + i, lanes) * scale, square = v * v;
    sum += square;
    simd::store<float>(part + i, simd::load<float>(part + i, lanes) + square, lanes);
  });
  return simd::sum(sum);
}

/// column = b column + c (sums / R + eps)
void move_column(float* column, const float* sums, const Adafactor& a) {
  const Numbers n(a);
  const auto rows = static_cast<float>(a.param.shape[0]);
  for (std::int64_t i = 0; i < a.param.shape[1]; ++i) column[i] = n.b * column[i] + n.c * (sums[i] / rows + n.eps);
}

void move_factors(Ctx& ctx, const Adafactor& a) {
  const Numbers n(a);
  const std::int64_t R = a.param.shape[0], C = a.param.shape[1];
  const float* grad = a.grad.as<float>();
  float* row = a.row.as<float>();
  RowSums<float> columns(ctx, R, C);
  columns.run([&](std::int64_t begin, std::int64_t end, float* part) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float mean = add_row(part, grad + r * C, C, n.scale) / static_cast<float>(C);
      row[r] = n.b * row[r] + n.c * (mean + n.eps);
    }
  });
  float* sums =
      reinterpret_cast<float*>(ctx.workspace(0).data());  // the first part, which finish() reads before it writes
  columns.finish(sums, Sink::Mode::store);
  move_column(a.column.as<float>(), sums, a);
}

/// The update before clipping, as rows of `width` elements; a vector is one row with an element per column.
struct Direction {
  std::int64_t rows, width;
  const float* grad;
  const float* row;      ///< [rows]; null for a vector
  float mean;            ///< mean of `row`
  const float* columns;  ///< [width], 1 / sqrt of the state
  float scale;           ///< factor of the gradients

  struct Row {
    const float *grad, *columns;
    float factor;

    Vec<float> at(std::int64_t i, auto lanes) const {
      return simd::load<float>(grad + i, lanes) * factor * simd::load<float>(columns + i, lanes);
    }
  };
  Row row_at(std::int64_t r) const {
    return {grad + r * width, columns, row ? scale / std::sqrt(row[r] / mean) : scale};
  }
};

double squares_of_row(const Direction& d, std::int64_t r) {
  Vec<double> sum{};
  const Direction::Row row = d.row_at(r);
  simd::each<float>(d.width, [&](std::int64_t i, auto lanes) {
    float u[simd::kLanes<float>];
    simd::store<float>(u, row.at(i, lanes));
    for (int half = 0; half < simd::kLanes<float>; half += simd::kLanes<double>) {
      const Vec<double> v = simd::load<double>(u + half);
      sum += v * v;
    }
  });
  return simd::sum(sum);
}

/// Layout of the workspace: columns [width] of a Direction, then one sum per task of `block_size` rows.
struct Work {
  std::int64_t block_size, tasks;
  float* columns;
  double* sums;

  Work(Ctx& ctx, std::int64_t rows, std::int64_t width) {
    block_size = std::max<std::int64_t>(kBlockSize / width, 1);
    tasks = ceil_div(rows, block_size);
    const std::int64_t even = ceil_div(width, std::int64_t{2}) * 2;
    check(static_cast<std::size_t>(even) * sizeof(float) + static_cast<std::size_t>(tasks) * sizeof(double) <=
              Ctx::kWorkspaceBytes,
          "adafactor: a parameter is too large for the workspace");
    columns = reinterpret_cast<float*>(ctx.workspace(0).data());
    sums = reinterpret_cast<double*>(columns + even);
  }
};

double sum_of(const auto* values, std::int64_t n) {
  double total = 0;
  for (std::int64_t i = 0; i < n; ++i) total += static_cast<double>(values[i]);
  return total;
}

void move_square(const Adafactor& a) {
  const Numbers n(a);
  const float* grad = a.grad.as<float>();
  float* square = a.square.as<float>();
  for (std::int64_t i = 0; i < a.param.numel(); ++i) {
    const float g = grad[i] * n.scale;
    square[i] = n.b * square[i] + n.c * (g * g + n.eps);
  }
}

void apply(Ctx& ctx, const Adafactor& a, const Direction& d, const Work& work) {
  const Numbers n(a);
  for_ranges(ctx, d.rows, work.block_size, [&](std::int64_t begin, std::int64_t end) {
    double sum = 0;
    for (std::int64_t r = begin; r < end; ++r) sum += squares_of_row(d, r);
    work.sums[begin / work.block_size] = sum;
  });
  const double rms = std::sqrt(sum_of(work.sums, work.tasks) / static_cast<double>(a.param.numel()));
  const float rate = n.rate / static_cast<float>(std::max(1.0, rms / a.clip));
  float* param = a.param.as<float>();
  for_ranges(ctx, d.rows, work.block_size, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const Direction::Row row = d.row_at(r);
      simd::each<float>(d.width, [&](std::int64_t i, auto lanes) {
        float* p = param + r * d.width + i;
        simd::store<float>(p, simd::load<float>(p, lanes) * n.keep - row.at(i, lanes) * rate, lanes);
      });
    }
  });
}

}  // namespace

void run_cpu(Ctx& ctx, const Adafactor& a) {
  if (a.factor.as<double>()[1] == 0) return;
  const bool matrix = a.param.shape.rank == 2;
  const std::int64_t rows = matrix ? a.param.shape[0] : 1, width = a.param.numel() / rows;
  const Work work(ctx, rows, width);
  if (matrix)
    move_factors(ctx, a);
  else
    move_square(a);
  const float* state = (matrix ? a.column : a.square).as<float>();
  for (std::int64_t i = 0; i < width; ++i) work.columns[i] = 1 / std::sqrt(state[i]);
  const float* row = matrix ? a.row.as<float>() : nullptr;
  const Direction direction{.rows = rows,
                            .width = width,
                            .grad = a.grad.as<float>(),
                            .row = row,
                            .mean = row ? static_cast<float>(sum_of(row, rows) / static_cast<double>(rows)) : 1,
                            .columns = work.columns,
                            .scale = Numbers(a).scale};
  apply(ctx, a, direction, work);
}

}  // namespace qtrain::ops
