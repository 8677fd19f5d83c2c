#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>

#include "core/context.h"
#include "kernels/cpu/simd.h"

/// How the CPU ops divide their work. The division depends on shapes only, so that results never depend on the threads.
namespace qtrain::ops {

inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// Calls body(begin, end) for chunks of [0, n), each of about `block_size` units.
template <class Body>
void for_ranges(Ctx& ctx, std::int64_t n, std::int64_t block_size, const Body& body) {
  block_size = std::max<std::int64_t>(block_size, 1);
  ctx.pool().run(ceil_div(n, block_size),
                 [&](std::int64_t task, int) { body(task * block_size, std::min(n, (task + 1) * block_size)); });
}

/// Elements per task of an elementwise op: enough to amortize scheduling the task.
inline constexpr std::int64_t kBlockSize = 1 << 14;

/// Rows of `width` elements, about kBlockSize elements per task.
template <class Body>
void for_rows(Ctx& ctx, std::int64_t rows, std::int64_t width, const Body& body) {
  for_ranges(ctx, rows, kBlockSize / std::max<std::int64_t>(width, 1), body);
}

/// y = or += v, according to `mode`.
template <class A, class T, class Lanes>
inline void write(T* y, simd::Vec<A> v, Lanes lanes, Sink::Mode mode) {
  if (mode == Sink::Mode::accumulate) v += simd::load<A>(y, lanes);
  simd::store<A>(y, v, lanes);
}

/// Sums over rows in a fixed order: the rows are divided into at most kParts parts, each part adds its rows in order,
/// and the parts are added in order. `add_rows(begin, end, part)` adds rows [begin, end) to part[width].
template <class A>
class RowSums {
 public:
  RowSums(Ctx& ctx, std::int64_t rows, std::int64_t width) : ctx_(ctx), rows_(rows), width_(width) {
    const auto fits = static_cast<std::int64_t>(Ctx::kWorkspaceBytes / sizeof(A)) / std::max<std::int64_t>(width, 1);
    check(fits >= 1, "a row is longer than the workspace");
    const std::int64_t parts = std::min({kParts, fits, ceil_div(rows, kMinRows)});
    block_size_ = ceil_div(rows, std::max<std::int64_t>(parts, 1));
    parts_ = reinterpret_cast<A*>(ctx.workspace(0).data());
  }

  template <class AddRows>
  void run(const AddRows& add_rows) {
    for_ranges(ctx_, rows_, block_size_, [&](std::int64_t begin, std::int64_t end) {
      A* part = parts_ + begin / block_size_ * width_;
      std::fill_n(part, width_, A{});
      add_rows(begin, end, part);
    });
  }

  template <class T>
  void finish(T* y, Sink::Mode mode) {
    const std::int64_t n = rows_ == 0 ? 0 : ceil_div(rows_, block_size_);
    for_ranges(ctx_, width_, kColumns, [&](std::int64_t begin, std::int64_t end) {
      simd::each<A>(end - begin, [&](std::int64_t i, auto lanes) {
        simd::Vec<A> total{};
        for (std::int64_t p = 0; p < n; ++p) total += simd::load<A>(parts_ + p * width_ + begin + i, lanes);
        write<A>(y + begin + i, total, lanes, mode);
      });
    });
  }

 private:
  static constexpr std::int64_t kParts = 64, kMinRows = 16, kColumns = 512;
  Ctx& ctx_;
  std::int64_t rows_, width_, block_size_ = 1;
  A* parts_;
};

}  // namespace qtrain::ops
