#include "kernels/cpu/gemm_blocked.h"

#include "kernels/cpu/gemm_finish.h"
#include "kernels/cpu/gemm_pack.h"
#include "kernels/cpu/isa.h"

namespace qtrain::ops {
namespace {

std::int64_t round_up(std::int64_t n, std::int64_t to) {
  return ceil_div(n, to) * to;
}

/// [begin, begin + size) of rows, columns or k.
struct Piece {
  std::int64_t begin, size;
};
/// n cut into pieces of equal size, a multiple of `unit`, of at most `most`.
struct Cut {
  std::int64_t n, size;

  Cut(std::int64_t total, std::int64_t most, std::int64_t unit) : n(total) {
    const std::int64_t limit = std::max(unit, most / unit * unit);
    size = std::max(unit, round_up(ceil_div(n, std::max<std::int64_t>(1, ceil_div(n, limit))), unit));
  }
  std::int64_t count() const { return std::max<std::int64_t>(1, ceil_div(n, size)); }
  Piece at(std::int64_t i) const { return {i * size, std::min(size, n - i * size)}; }
};

/// Where the row operand of the product is read: in place, or packed panel by panel.
enum class RowSource : std::uint8_t { in_place, packed };

/// C is computed in blocks; a block sums over the pieces of k in order, its f32 tiles kept between the pieces. A task
/// takes a strip of columns, packs it for the current piece of k, and multiplies it with a group of rows. Rows are read
/// where they lie if they are f32 with k running fastest; otherwise they are packed first, once for all strips.
/// Workspace of worker 0: packed rows, tiles; of every worker: its strip, at the end.
class Blocked {
 public:
  Blocked(Ctx& ctx, const Gemm& g)
      : ctx_(ctx),
        g_(g),
        kernel_(tile_kernel(ctx.matmul())),
        a_(rows_of(g)),
        b_(columns_of(g)),
        finish_(finish_tile_for(g)),
        source_(kernel_.k_group == 1 && a_.dtype == DType::f32 && a_.k_stride == 1 ? RowSource::in_place
                                                                                   : RowSource::packed),
        depth_(a_.k, kernel_.k_block, 8),
        rows_(a_.lanes, most_rows(), kernel_.mr),
        columns_(b_.lanes, most_columns(), kernel_.nr) {
    std::byte* space = ctx.workspace(0).data();
    packed_rows_ = space;
    tiles_ = reinterpret_cast<float*>(space + (source_ == RowSource::packed ? kRowBytes : 0));
  }

  void run() {
    for (std::int64_t i = 0; i < rows_.count(); ++i)
      for (std::int64_t j = 0; j < columns_.count(); ++j)
        for (std::int64_t k = 0; k < depth_.count(); ++k) {
          block_ = {rows_.at(i), columns_.at(j), depth_.at(k), k == 0, k + 1 == depth_.count()};
          const bool rows_are_there = depth_.count() == 1 && j > 0;
          if (source_ == RowSource::packed && !rows_are_there) pack_rows();
          multiply();
        }
  }

 private:
  static constexpr std::int64_t kMiB = 1 << 20;
  static constexpr std::int64_t kRowBytes = 3 * kMiB / 2, kStripBytes = kMiB;
  static constexpr std::int64_t kTileBytes = static_cast<std::int64_t>(Ctx::kWorkspaceBytes) - kRowBytes - kStripBytes;
  static constexpr std::int64_t kTasks = 24, kFewestRows = 192;

  struct Block {
    Piece rows, columns, k;
    bool first, last;
  };

  /// Bytes between panels of `width` lanes: 64 more than the panel, which packing may write over.
  std::int64_t stride(int width) const {
    return round_up(PanelForm{width, kernel_.k_group}.bytes(depth_.size), 64) + 64;
  }

  std::int64_t most_rows() const {
    constexpr std::int64_t kWithTiles = 512, kInPlace = 4096;
    const std::int64_t most = depth_.count() == 1 ? kInPlace : kWithTiles;
    return source_ == RowSource::in_place ? most : std::min(most, kRowBytes / stride(kernel_.mr) * kernel_.mr);
  }
  std::int64_t most_columns() const {
    if (depth_.count() == 1) return b_.lanes;
    return kTileBytes / (rows_.size * std::int64_t{sizeof(float)});
  }

  void pack_rows() {
    const std::int64_t panels = ceil_div(block_.rows.size, kernel_.mr);
    for_ranges(ctx_, panels, 8, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t p = begin; p < end; ++p) {
        const std::int64_t lane = p * kernel_.mr, count = std::min<std::int64_t>(kernel_.mr, block_.rows.size - lane);
        pack_panel(packed_rows_ + p * stride(kernel_.mr), a_,
                   {block_.rows.begin + lane, count, block_.k.begin, block_.k.size}, {kernel_.mr, kernel_.k_group});
      }
    });
  }

  /// Strips of columns times groups of rows: enough tasks for several processors, in groups that repay packing a strip.
  void multiply() {
    const Cut strips(block_.columns.size, kernel_.strip, kernel_.nr);
    const std::int64_t wanted = ceil_div(kTasks, strips.count());
    const std::int64_t rows = std::max(kFewestRows, ceil_div(block_.rows.size, wanted));
    const Cut groups(block_.rows.size, rows, kernel_.mr);
    ctx_.pool().run(groups.count() * strips.count(), [&](std::int64_t task, int worker) {
      std::byte* strip = ctx_.workspace(worker).data() + Ctx::kWorkspaceBytes - kStripBytes;
      const Piece columns = strips.at(task % strips.count()), group = groups.at(task / strips.count());
      pack_strip(strip, columns);
      multiply_strip(strip, columns, group);
    });
  }
  void pack_strip(std::byte* strip, const Piece& columns) const {
    for (std::int64_t j = 0; j < columns.size; j += kernel_.nr, strip += stride(kernel_.nr)) {
      const std::int64_t count = std::min<std::int64_t>(kernel_.nr, columns.size - j);
      const int width = static_cast<int>(round_up(count, kernel_.lanes));
      pack_panel(strip, b_, {block_.columns.begin + columns.begin + j, count, block_.k.begin, block_.k.size},
                 {width, kernel_.k_group});
    }
  }
  /// A task's first column, current column and number of columns.
  struct Progress {
    std::int64_t first, column, columns;
  };
  void multiply_strip(const std::byte* strip, const Piece& columns, const Piece& group) {
    const std::int64_t mr = kernel_.mr, nr = kernel_.nr, column_end = columns.begin + columns.size;
    const auto tile = [&](std::int64_t row, std::int64_t column) {
      multiply_tile(row, column, strip + (column - columns.begin) / nr * stride(kernel_.nr));
    };
    if (kernel_.resident == Resident::rows) {
      for (std::int64_t row = group.begin; row < group.begin + group.size; row += mr)
        for (std::int64_t column = columns.begin; column < column_end; column += nr) {
          prefetch_rows(row + mr, group.begin + group.size, {columns.begin, column, columns.size});
          tile(row, column);
        }
    } else {
      for (std::int64_t column = columns.begin; column < column_end; column += nr)
        for (std::int64_t row = group.begin; row < group.begin + group.size; row += mr) tile(row, column);
    }
  }

  /// While the tiles of one row of tiles are computed, the next rows are fetched: they may be far apart in memory,
  /// where the processor does not follow by itself.
  void prefetch_rows(std::int64_t row, std::int64_t end, const Progress& at) const {
    if (source_ == RowSource::packed) return;
    const std::int64_t lines = ceil_div(block_.k.size * 4, 64), parts = ceil_div(at.columns, kernel_.nr);
    const std::int64_t part = (at.column - at.first) / kernel_.nr,
                       all = lines * std::min<std::int64_t>(kernel_.mr, end - row);
    for (std::int64_t i = all * part / parts; i < all * (part + 1) / parts; ++i) {
      const std::int64_t lane = block_.rows.begin + row + i / lines, k = block_.k.begin + i % lines * 16;
      __builtin_prefetch(reinterpret_cast<const float*>(a_.data) + lane * a_.lane_stride + k);
    }
  }

  /// The tile whose upper left element is (row, column) of the block.
  void multiply_tile(std::int64_t row, std::int64_t column, const std::byte* panel) {
    alignas(64) float once[kMostTile];
    const std::int64_t rows = std::min<std::int64_t>(kernel_.mr, block_.rows.size - row);
    const std::int64_t columns = std::min<std::int64_t>(kernel_.nr, block_.columns.size - column);
    TileCall call{
        .groups = ceil_div(block_.k.size, kernel_.k_group), .b = panel, .tile_row = kernel_.nr, .add = !block_.first};
    call.tile = block_.first && block_.last ? once : tile_at(row, column);
    if (source_ == RowSource::packed) {
      call.a = packed_rows_ + row / kernel_.mr * stride(kernel_.mr);
      call.a_row = 1, call.a_group = kernel_.mr, call.rows = kernel_.mr;
    } else {
      call.a = reinterpret_cast<const float*>(a_.data) + (block_.rows.begin + row) * a_.lane_stride + block_.k.begin;
      call.a_row = a_.lane_stride, call.a_group = 1, call.rows = rows;
    }
    const std::int64_t vectors = ceil_div(columns, kernel_.lanes);
    call.b_group = vectors * kernel_.lanes;
    kernel_.run[vectors - 1](call);
    if (block_.last)
      finish_(g_, {.data = call.tile,
                   .stride = kernel_.nr,
                   .row = block_.rows.begin + row,
                   .column = block_.columns.begin + column,
                   .rows = rows,
                   .columns = columns});
  }
  float* tile_at(std::int64_t row, std::int64_t column) const {
    return tiles_ + column * rows_.size + row * kernel_.nr;
  }

  static constexpr std::int64_t kMostTile = 8 * 48;
  Ctx& ctx_;
  const Gemm& g_;
  const TileKernel& kernel_;
  Operand a_, b_;
  FinishTile finish_;
  RowSource source_;
  Cut depth_, rows_, columns_;
  std::byte* packed_rows_;
  float* tiles_;
  Block block_{};
};

}  // namespace

const TileKernel& tile_kernel(MatmulPrecision precision) {
  const CpuIsa isa = cpu_isa();
  if (isa == CpuIsa::avx2) return kTileAvx2;
  return precision == MatmulPrecision::bf16 && isa == CpuIsa::avx512_bf16 ? kTileAvx512Bf16 : kTileAvx512;
}

void gemm_blocked(Ctx& ctx, const Gemm& g) {
  Blocked(ctx, g).run();
}

}  // namespace qtrain::ops
