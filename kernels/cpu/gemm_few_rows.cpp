#include "kernels/cpu/gemm_few_rows.h"

#include "kernels/cpu/gemm_blocked.h"
#include "kernels/cpu/gemm_finish.h"

namespace qtrain::ops {
namespace {

constexpr int kWidth = kStreamed;
/// Values of k that are packed at a time, of kWidth columns.
constexpr std::int64_t kPackedDepth = 64;

/// Sums in f32 are the same in vectors of any width, and eight lanes are those that b can be turned in.
const TileKernel& few_rows_kernel(MatmulPrecision precision) {
  const TileKernel& widest = tile_kernel(precision);
  return widest.k_group == 1 ? kTileF32 : widest;
}

/// The rows of a term as tiles read them, in panels of mr: in place, or packed.
struct RowPanels {
  const std::byte* data;
  std::int64_t panel_bytes, row_step, group_step;

  const void* at(std::int64_t panel, std::int64_t group) const {
    return data + panel * panel_bytes + group * group_step * 4;
  }
};

/// C in panels of kWidth columns, each summed over all terms while its tile stays in the first cache.
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
    for_rows(ctx_, ceil_div(N, kWidth), (total_depth() + 1) * kWidth, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) multiply(i * kWidth, std::min<std::int64_t>(kWidth, N - i * kWidth));
    });
  }

 private:
  /// A panel of columns of one term, from k on, and the tile it is added to.
  struct Part {
    std::size_t term;
    Operand columns;
    std::int64_t k, count;
    float* tile;
  };

  std::int64_t total_depth() const {
    std::int64_t depth = 0;
    for (const FewRowsTerm& t : terms_) depth += t.rows.k;
    return depth;
  }

  void pack_rows() {
    std::byte* space = ctx_.workspace(0).data();
    const PanelForm form{kernel_.mr, kernel_.k_group};
    for (const FewRowsTerm& t : terms_) {
      if (kernel_.k_group == 1 && t.rows.dtype == DType::f32 && t.rows.k_stride == 1) {
        rows_.push_back({t.rows.data, kernel_.mr * t.rows.lane_stride * 4, t.rows.lane_stride, 1});
        continue;
      }
      rows_.push_back({space, form.bytes(t.rows.k), 1, kernel_.mr});
      for (std::int64_t row = 0; row < M_; row += kernel_.mr, space += form.bytes(t.rows.k))
        pack_panel(space, t.rows, {row, std::min<std::int64_t>(kernel_.mr, M_ - row), 0, t.rows.k}, form);
    }
  }

  void multiply(std::int64_t column, std::int64_t count) const {
    alignas(64) float tile[kFewRows * kWidth] = {};
    for (std::size_t i = 0; i < terms_.size(); ++i) {
      const FewRowsTerm& t = terms_[i];
      if (!t.write) {
        add({i, from(t.columns, column, 0), 0, count, tile}, t.rows.k);
        continue;
      }
      alignas(64) float written[kWidth * kWrittenDepth];
      for (std::int64_t k = 0; k < t.rows.k; k += kWrittenDepth) {
        const std::int64_t depth = std::min(kWrittenDepth, t.rows.k - k);
        t.write(written, {column, count, k, depth});
        add({i,
             {reinterpret_cast<const std::byte*>(written), DType::f32, count, depth, kWrittenDepth, 1},
             k,
             count,
             tile},
            depth);
      }
    }
    finish_(g_, {.data = tile, .stride = kWidth, .row = 0, .column = column, .rows = M_, .columns = count});
  }
  static Operand from(Operand o, std::int64_t lane, std::int64_t k) {
    o.data += (lane * o.lane_stride + k * o.k_stride) * static_cast<std::int64_t>(size_of(o.dtype));
    return o;
  }

  void add(const Part& part, std::int64_t depth) const {
    const std::int64_t streamed = stream(part, depth);
    if (streamed < depth)
      packed({part.term, from(part.columns, 0, streamed), part.k + streamed, part.count, part.tile}, depth - streamed);
  }

  /// For one or two rows columns are turned on the way to the multiplier. Returns how many k are done.
  std::int64_t stream(const Part& part, std::int64_t depth) const {
    const Operand& b = part.columns;
    if (M_ > 2 || part.count < kWidth || b.k_stride != 1) return 0;
    const StreamTile run = (b.dtype == DType::bf16 ? kernel_.stream_bf16 : kernel_.stream_f32)[M_ - 1];
    depth = depth / kStreamedDepth * kStreamedDepth;
    if (!run || depth == 0) return 0;
    const RowPanels& rows = rows_[part.term];
    run({.depth = depth,
         .a = rows.at(0, part.k / kernel_.k_group),
         .a_row = rows.row_step,
         .a_group = rows.group_step,
         .b = b.data,
         .b_column = b.lane_stride * static_cast<std::int64_t>(size_of(b.dtype)),
         .tile = part.tile,
         .tile_row = kWidth});
    return depth;
  }

  void packed(const Part& part, std::int64_t depth) const {
    alignas(64) std::uint32_t words[kPackedDepth * kWidth + 16];  // pack_panel may write 64 bytes more
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

void gemm_few_rows(Ctx& ctx, const Gemm& g, const std::vector<FewRowsTerm>& terms) {
  FewRows(ctx, g, terms).run();
}

}  // namespace qtrain::ops
