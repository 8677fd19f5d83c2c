#include "kernels/cpu/gemm_blocked.h"

#include "kernels/cpu/gemm_finish.h"
#include "kernels/cpu/gemm_pack.h"
#include "kernels/cpu/isa.h"

namespace qtrain::ops {
namespace {

std::int64_t round_up(std::int64_t n, std::int64_t to) {
  return ceil_div(n, to) * to;
}

const TileKernel& kernel_for(Ctx& ctx) {
  const CpuIsa isa = cpu_isa();
  if (isa == CpuIsa::avx2) return kTileAvx2;
  const bool halved = ctx.matmul() == MatmulPrecision::bf16 && isa == CpuIsa::avx512_bf16;
  return halved ? kTileAvx512Bf16 : kTileAvx512;
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

/// Panels of one operand, packed one behind the other into `base`.
struct Panels {
  std::byte* base;
  std::int64_t stride, width;

  std::byte* at(std::int64_t panel) const { return base + panel * stride; }
  std::int64_t count(std::int64_t lanes) const { return ceil_div(lanes, width); }
};

/// C is computed in blocks; a block sums over the pieces of k in order, with its f32 tiles kept between the pieces.
/// Both operands of a (block, piece of k) are packed once, then tasks multiply groups of panels. The workspace holds
/// the packed rows, the packed columns, and the tiles.
class Blocked {
 public:
  Blocked(Ctx& ctx, const Gemm& g)
      : ctx_(ctx),
        g_(g),
        kernel_(kernel_for(ctx)),
        a_(rows_of(g)),
        b_(columns_of(g)),
        finish_(finish_tile_for(g)),
        depth_(a_.k, kernel_.k_block, 8),
        rows_(a_.lanes, most_rows(), kernel_.mr),
        columns_(b_.lanes, most_columns(), kernel_.nr) {
    std::byte* space = ctx.workspace(0).data();
    row_panels_ = {space, bytes(kernel_.mr), kernel_.mr};
    column_panels_ = {space + kPanelBytes, bytes(kernel_.nr), kernel_.nr};
    tiles_ = reinterpret_cast<float*>(space + 2 * kPanelBytes);
  }

  void run() {
    for (std::int64_t i = 0; i < rows_.count(); ++i)
      for (std::int64_t j = 0; j < columns_.count(); ++j)
        for (std::int64_t k = 0; k < depth_.count(); ++k) {
          block_ = {rows_.at(i), columns_.at(j), depth_.at(k), k == 0, k + 1 == depth_.count()};
          const bool rows_stay = depth_.count() == 1 && j > 0;
          pack(rows_stay ? Keep::rows : Keep::none);
          multiply();
        }
  }

 private:
  static constexpr std::int64_t kPanelBytes = std::int64_t{3} << 19, kTileBytes = std::int64_t{1} << 20;
  static_assert(2 * kPanelBytes + kTileBytes <= static_cast<std::int64_t>(Ctx::kWorkspaceBytes));
  static constexpr std::int64_t kGroupBytes = 192 << 10;  // packed rows a task goes through: a part of a level-2 cache

  enum class Keep : std::uint8_t { none, rows };
  struct Block {
    Piece rows, columns, k;
    bool first, last;
  };

  /// Bytes between panels of `width` lanes: 64 more than the panel, which packing may write over.
  std::int64_t bytes(int width) const {
    return round_up(PanelForm{width, kernel_.k_group}.bytes(depth_.size), 64) + 64;
  }
  std::int64_t most_rows() const {
    const std::int64_t packed = kPanelBytes / bytes(kernel_.mr) * kernel_.mr;
    return depth_.count() == 1 ? packed : std::min<std::int64_t>(packed, 512);
  }
  std::int64_t most_columns() const {
    const std::int64_t packed = kPanelBytes / bytes(kernel_.nr) * kernel_.nr;
    if (depth_.count() == 1) return packed;
    return std::min(packed, kTileBytes / (rows_.size * std::int64_t{sizeof(float)}));
  }

  void pack(Keep keep) {
    const std::int64_t row_panels = keep == Keep::rows ? 0 : row_panels_.count(block_.rows.size);
    const std::int64_t column_panels = column_panels_.count(block_.columns.size);
    constexpr std::int64_t kRowsAtOnce = 6;  // row panels are narrow
    const std::int64_t row_tasks = ceil_div(row_panels, kRowsAtOnce);
    ctx_.pool().run(row_tasks + column_panels, [&](std::int64_t task, int) {
      if (task >= row_tasks) return pack_columns(task - row_tasks);
      for (std::int64_t p = task * kRowsAtOnce; p < std::min(row_panels, (task + 1) * kRowsAtOnce); ++p) {
        const std::int64_t lane = p * kernel_.mr, count = std::min<std::int64_t>(kernel_.mr, block_.rows.size - lane);
        pack_panel(row_panels_.at(p), a_, {block_.rows.begin + lane, count, block_.k.begin, block_.k.size},
                   {kernel_.mr, kernel_.k_group});
      }
    });
  }
  void pack_columns(std::int64_t p) {
    const std::int64_t lane = p * kernel_.nr, count = std::min<std::int64_t>(kernel_.nr, block_.columns.size - lane);
    const int width = static_cast<int>(round_up(count, kernel_.lanes));
    pack_panel(column_panels_.at(p), b_, {block_.columns.begin + lane, count, block_.k.begin, block_.k.size},
               {width, kernel_.k_group});
  }

  void multiply() {
    const std::int64_t panels = row_panels_.count(block_.rows.size);
    const Cut groups(panels, std::max<std::int64_t>(1, kGroupBytes / row_panels_.stride), 1);
    const std::int64_t columns = column_panels_.count(block_.columns.size);
    ctx_.pool().run(groups.count() * columns, [&](std::int64_t task, int) {
      const Piece group = groups.at(task / columns);
      for (std::int64_t i = group.begin; i < group.begin + group.size; ++i) multiply_tile(i, task % columns);
    });
  }
  void multiply_tile(std::int64_t i, std::int64_t j) {
    alignas(64) float once[kMostTile];
    const std::int64_t row = i * kernel_.mr, column = j * kernel_.nr;
    const std::int64_t rows = std::min<std::int64_t>(kernel_.mr, block_.rows.size - row);
    const std::int64_t columns = std::min<std::int64_t>(kernel_.nr, block_.columns.size - column);
    float* tile = block_.first && block_.last ? once : tile_at(i, j);
    const std::int64_t groups = ceil_div(block_.k.size, kernel_.k_group);
    kernel_.run[ceil_div(columns, kernel_.lanes) - 1](
        {groups, row_panels_.at(i), column_panels_.at(j), tile, !block_.first});
    if (block_.last)
      finish_(g_, {.data = tile,
                   .stride = kernel_.nr,
                   .row = block_.rows.begin + row,
                   .column = block_.columns.begin + column,
                   .rows = rows,
                   .columns = columns});
  }
  float* tile_at(std::int64_t i, std::int64_t j) {
    return tiles_ + (j * row_panels_.count(rows_.size) + i) * kernel_.mr * kernel_.nr;
  }

  static constexpr std::int64_t kMostTile = 14 * 48;
  Ctx& ctx_;
  const Gemm& g_;
  const TileKernel& kernel_;
  Operand a_, b_;
  FinishTile finish_;
  Cut depth_, rows_, columns_;
  Panels row_panels_, column_panels_;
  float* tiles_;
  Block block_{};
};

}  // namespace

void gemm_blocked(Ctx& ctx, const Gemm& g) {
  Blocked(ctx, g).run();
}

}  // namespace qtrain::ops
