#include "kernels/cpu/gemm_few_rows.h"

#include <atomic>

#include "kernels/cpu/gemm_blocked.h"
#include "kernels/cpu/gemm_finish.h"

namespace qtrain::ops {
namespace {

/// Columns per panel, and per packed part of one.
constexpr int kWidth = 32, kPackedWidth = 16;
/// Values of k packed at a time, for kPackedWidth columns.
constexpr std::int64_t kPackedDepth = 64;

/// f32 sums are the same in vectors of any width, and b can be transposed in eight lanes.
const TileKernel& few_rows_kernel(MatmulPrecision precision) {
  const TileKernel& widest = tile_kernel(precision);
  return widest.k_group == 1 ? kTileF32 : widest;
}

DType type_of(const TileKernel& kernel) {
  return kernel.k_group == 1 ? DType::f32 : DType::bf16;
}

/// The rows of a term as tiles read them, in panels of mr rows: in place, or packed.
struct RowPanels {
  const std::byte* data;
  std::int64_t panel_bytes, row_step, group_step;

  const void* at(std::int64_t panel, std::int64_t group) const {
    return data + panel * panel_bytes + group * group_step * 4;
  }
};

/// C in panels of kWidth columns; a panel's tile stays in the level-1 cache while it is summed over all terms.
class FewRows {
 public:
  FewRows(Ctx& ctx, const Gemm& g, const std::vector<FewRowsTerm>& terms)
      : ctx_(ctx),
        g_(g),
        terms_(terms),
        kernel_(few_rows_kernel(ctx.matmul())),
        finish_(finish_tile_for(g)),
        M_(g.c.t.shape[0]) {
    check(M_ <= kFewRows && total_depth() <= kMaxFewRowsDepth, "gemm: rows are too many or too long");
    pack_rows();
  }

  void run() {
    const std::int64_t N = g_.c.t.shape[1];
    const std::int64_t panels = ceil_div(N, kWidth), blocks = panels * kWidth * (total_depth() + 1) / kBlockSize;
    const std::int64_t count = std::clamp<std::int64_t>(std::min(panels, blocks), 1, ctx_.pool().size());
    std::vector<Share> shares(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
      shares[static_cast<std::size_t>(i)].next = panels * i / count;
      shares[static_cast<std::size_t>(i)].end = panels * (i + 1) / count;
    }
    ctx_.pool().run(count, [&](std::int64_t own, int) {
      for (std::int64_t i = 0; i < count; ++i) run_share(shares[static_cast<std::size_t>((own + i) % count)]);
    });
  }

 private:
  /// A panel of one term's columns, starting at k, and the tile that it is added to.
  struct Part {
    std::size_t term;
    Operand columns;
    std::int64_t k, count, ahead;
    float* tile;
  };

  std::int64_t total_depth() const {
    std::int64_t depth = 0;
    for (const FewRowsTerm& t : terms_) depth += t.rows.k;
    return depth;
  }

  void pack_rows() {
    std::byte* space = ctx_.workspace(0).data();
    // Rows beyond M do not take up space between those that exist.
    const PanelForm form{static_cast<int>(std::min<std::int64_t>(kernel_.mr, M_)), kernel_.k_group};
    for (const FewRowsTerm& t : terms_) {
      if (kernel_.k_group == 1 && t.rows.dtype == DType::f32 && t.rows.k_stride == 1) {
        rows_.push_back({t.rows.data, kernel_.mr * t.rows.lane_stride * 4, t.rows.lane_stride, 1});
        continue;
      }
      rows_.push_back({space, form.bytes(t.rows.k), 1, form.width});
      if (form.width == 1 && form.k_group == 2 && t.rows.dtype == DType::f32 && t.rows.k_stride == 1) {
        round_row(space, t.rows);
        space += form.bytes(t.rows.k);
        continue;
      }
      for (std::int64_t row = 0; row < M_; row += kernel_.mr, space += form.bytes(t.rows.k))
        pack_panel(space, t.rows, {row, std::min<std::int64_t>(kernel_.mr, M_ - row), 0, t.rows.k}, form);
    }
  }

  /// Rounds a single row to bf16; pairs keep their places, and an odd last k is followed by zero.
  static void round_row(std::byte* to, const Operand& row) {
    const auto* x = reinterpret_cast<const float*>(row.data);
    auto* y = reinterpret_cast<Bf16*>(to);
    simd::each<float>(
        row.k, [&](std::int64_t k, auto lanes) { simd::store<float>(y + k, simd::load<float>(x + k, lanes), lanes); });
    if (row.k % 2 == 1) y[row.k] = Bf16(0.0F);
  }

  /// Adjacent panels, mostly processed by one thread, so that its next reads are known. Threads that have finished
  /// their share take panels from others; a panel's result does not depend on the thread.
  struct alignas(64) Share {
    std::atomic<std::int64_t> next;
    std::int64_t end;
  };
  void run_share(Share& share) const {
    const std::int64_t N = g_.c.t.shape[1];
    for (std::int64_t i; (i = share.next.fetch_add(1)) < share.end;)
      multiply({i * kWidth, std::min<std::int64_t>(kWidth, N - i * kWidth), i + 1 < share.end ? kWidth : 0});
  }

  /// Columns of C, and the distance in columns to those that this thread most likely multiplies next.
  struct Panel {
    std::int64_t column, count, ahead;
  };

  void multiply(const Panel& panel) const {
    alignas(64) float tile[kFewRows * kWidth] = {};
    for (std::size_t i = 0; i < terms_.size(); ++i) {
      const FewRowsTerm& t = terms_[i];
      if (!t.write)
        add({i, from(t.columns, panel.column, 0), 0, panel.count, panel.ahead, tile}, t.rows.k);
      else
        add_codes(i, panel, tile);
    }
    finish_(g_, {.data = tile, .stride = kWidth, .row = 0, .column = panel.column, .rows = M_, .columns = panel.count});
  }

  void add_codes(std::size_t i, const Panel& panel, float* tile) const {
    const FewRowsTerm& t = terms_[i];
    std::int64_t k = 0;
    if (t.stream && M_ <= 2 && panel.count == kWidth)
      k = t.stream({kernel_, call_of(rows_[i], tile, panel.ahead), panel.column, M_});
    alignas(64) std::byte written[kWidth * kWrittenDepth * sizeof(float)];
    for (; k < t.rows.k; k += kWrittenDepth) {
      const std::int64_t depth = std::min(kWrittenDepth, t.rows.k - k);
      t.write(written, {panel.column, panel.count, k, depth});
      add({i, {written, type_of(kernel_), panel.count, depth, kWrittenDepth, 1}, k, panel.count, 0, tile}, depth);
    }
  }
  static StreamCall call_of(const RowPanels& rows, float* tile, std::int64_t ahead) {
    return {.depth = 0,
            .a = rows.data,
            .a_row = rows.row_step,
            .a_group = rows.group_step,
            .b = nullptr,
            .b_column = 0,
            .ahead = ahead,
            .tile = tile,
            .tile_row = kWidth};
  }

  static Operand from(Operand o, std::int64_t lane, std::int64_t k) {
    o.data += (lane * o.lane_stride + k * o.k_stride) * static_cast<std::int64_t>(size_of(o.dtype));
    return o;
  }

  void add(const Part& part, std::int64_t depth) const {
    for (std::int64_t c = 0, width; c < part.count; c += width) {
      width =
          part.count - c >= kernel_.streamed ? kernel_.streamed : std::min<std::int64_t>(kPackedWidth, part.count - c);
      Part some = part;
      some.columns = from(part.columns, c, 0);
      some.count = width;
      some.tile += c;
      add_columns(some, depth);
    }
  }
  void add_columns(const Part& part, std::int64_t depth) const {
    const std::int64_t streamed = stream(part, depth);
    for (std::int64_t c = 0; streamed < depth && c < part.count; c += kPackedWidth)
      packed({part.term, from(part.columns, c, streamed), part.k + streamed,
              std::min<std::int64_t>(kPackedWidth, part.count - c), 0, part.tile + c},
             depth - streamed);
  }

  /// For one or two rows, columns are transposed on the fly. Returns the number of k processed.
  std::int64_t stream(const Part& part, std::int64_t depth) const {
    const Operand& b = part.columns;
    if (M_ > 2 || part.count != kernel_.streamed || b.k_stride != 1) return 0;
    const StreamTile run = (b.dtype == DType::bf16 ? kernel_.stream_bf16 : kernel_.stream_f32)[M_ - 1];
    depth = depth / kStreamedDepth * kStreamedDepth;
    if (!run || depth == 0) return 0;
    StreamCall call = call_of(rows_[part.term], part.tile, 0);
    call.depth = depth;
    call.a = rows_[part.term].at(0, part.k / kernel_.k_group);
    call.b = b.data;
    call.b_column = b.lane_stride * static_cast<std::int64_t>(size_of(b.dtype));
    call.ahead = part.ahead * call.b_column;
    run(call);
    return depth;
  }

  void packed(const Part& part, std::int64_t depth) const {
    alignas(64) std::uint32_t words[kPackedDepth * kPackedWidth + 16];  // pack_panel may write 64 bytes past the end
    const RowPanels& rows = rows_[part.term];
    const std::int64_t vectors = ceil_div(part.count, kernel_.lanes);
    const auto width = static_cast<int>(vectors * kernel_.lanes);
    TileCall call{.a_row = rows.row_step,
                  .a_group = rows.group_step,
                  .b = words,
                  .b_group = width,
                  .tile_row = kWidth,
                  .add = true};
    for (std::int64_t k = 0; k < depth; k += kPackedDepth) {
      const std::int64_t size = std::min(kPackedDepth, depth - k);
      pack_panel(words, part.columns, {0, part.count, k, size}, {width, kernel_.k_group});
      call.groups = ceil_div(size, kernel_.k_group);
      for (std::int64_t row = 0; row < M_; row += kernel_.mr) {
        call.rows = std::min<std::int64_t>(kernel_.mr, M_ - row);
        call.a = rows.at(row / kernel_.mr, (part.k + k) / kernel_.k_group);
        call.tile = part.tile + row * kWidth;
        tile_function(kernel_, call.rows, vectors)(call);
      }
    }
  }

  Ctx& ctx_;
  const Gemm& g_;
  const std::vector<FewRowsTerm>& terms_;
  const TileKernel& kernel_;
  FinishTile finish_;
  std::int64_t M_;
  std::vector<RowPanels> rows_;
};

}  // namespace

FewRowsTerm few_rows_term(const Factors& f) {
  return {.rows = rows_of(f), .columns = columns_of(f)};
}

DType few_rows_type(const Ctx& ctx) {
  return type_of(few_rows_kernel(ctx.matmul()));
}

void gemm_few_rows(Ctx& ctx, const Gemm& g, const std::vector<FewRowsTerm>& terms) {
  FewRows(ctx, g, terms).run();
}

}  // namespace qtrain::ops
