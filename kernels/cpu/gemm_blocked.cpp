#include "kernels/cpu/gemm_blocked.h"

#include "kernels/cpu/gemm_finish.h"
#include "kernels/cpu/gemm_pack.h"

namespace qtrain::ops {
namespace {

std::int64_t round_up(std::int64_t n, std::int64_t to) {
  return ceil_div(n, to) * to;
}

/// A range [begin, begin + size) of rows, columns or k.
struct Range {
  std::int64_t begin, size;
};
/// Divides n into chunks of equal size, a multiple of `unit` and at most `max`.
struct Cut {
  std::int64_t n, size;

  Cut(std::int64_t total, std::int64_t max, std::int64_t unit) : n(total) {
    const std::int64_t limit = std::max(unit, max / unit * unit);
    size = std::max(unit, round_up(ceil_div(n, std::max<std::int64_t>(1, ceil_div(n, limit))), unit));
  }
  std::int64_t count() const { return std::max<std::int64_t>(1, ceil_div(n, size)); }
  Range at(std::int64_t i) const { return {i * size, std::min(size, n - i * size)}; }
};

/// How the row operands are read: in place, or packed panel by panel.
enum class RowSource : std::uint8_t {
  in_place,
  packed,       ///< all in advance, shared by all strips
  packed_late,  ///< one panel before it is multiplied, if there is only one strip
};

/// One GEMM of the sum; its k are [first, first + depth) of the k of the whole sum.
struct Term {
  Operand a, b;
  std::int64_t first;
};
/// The part of a term in a block of k, and its start in the panels of that block.
struct Segment {
  const Term* term;
  Range k;
  std::int64_t group;
};

/// C is computed in blocks. Each block sums over blocks of k in order, keeping its f32 tiles in between. A task takes a
/// strip of columns, packs it for the current block of k, and multiplies it by a group of rows. Rows are read in place
/// if they are f32 with contiguous k; otherwise they are packed first, once for all strips. The k of several GEMMs are
/// concatenated, each starting at a whole group of k.
/// Workspace: packed rows and tiles in worker 0's; each worker's strip at the end of its own.
class Blocked {
 public:
  Blocked(Ctx& ctx, const Gemm& g)
      : ctx_(ctx),
        g_(g),
        kernel_(tile_kernel(ctx.matmul())),
        finish_(finish_tile_for(g)),
        total_depth_(add_terms()),
        source_(source_of_rows()),
        depth_(total_depth_, kernel_.k_block + kernel_.k_block / 16, 8),
        rows_(g.c.t.shape[0], max_rows(), kernel_.mr),
        columns_(g.c.t.shape[1], max_columns(), kernel_.nr) {
    std::byte* space = ctx.workspace(0).data();
    packed_rows_ = space;
    tiles_ = reinterpret_cast<float*>(space + (source_ == RowSource::in_place ? 0 : kRowBytes));
    if (source_ == RowSource::packed && depth_.count() == 1 && g.c.t.shape[1] <= kernel_.nr)
      source_ = RowSource::packed_late;
  }

  void run() {
    for (std::int64_t i = 0; i < rows_.count(); ++i)
      for (std::int64_t j = 0; j < columns_.count(); ++j)
        for (std::int64_t k = 0; k < depth_.count(); ++k) {
          block_ = {rows_.at(i), columns_.at(j), segments_of(depth_.at(k)), k == 0, k + 1 == depth_.count()};
          const bool rows_are_there = depth_.count() == 1 && j > 0;
          if (source_ == RowSource::packed && !rows_are_there) pack_rows();
          multiply();
        }
  }

 private:
  static constexpr std::int64_t kMiB = 1 << 20;
  static constexpr std::int64_t kRowBytes = 3 * kMiB / 2, kStripBytes = kMiB;
  static constexpr std::int64_t kTileBytes = static_cast<std::int64_t>(Ctx::kWorkspaceBytes) - kRowBytes - kStripBytes;
  static constexpr std::int64_t kTasksPerThread = 2, kFewestRows = 64;

  struct Block {
    Range rows, columns;
    std::vector<Segment> segments;
    bool first, last;
  };

  /// Adds the terms and returns the depth of the whole sum.
  std::int64_t add_terms() {
    std::int64_t depth = 0;
    const auto add = [&](const Factors& f) {
      terms_.push_back({rows_of(f), columns_of(f), depth});
      depth += round_up(f.depth(), kernel_.k_group);
    };
    add(g_.first());
    for (const Factors& f : g_.added)
      if (f.present()) add(f);
    return depth;
  }
  RowSource source_of_rows() const {
    const bool in_place = kernel_.k_group == 1 && std::all_of(terms_.begin(), terms_.end(), [](const Term& t) {
                            return t.a.dtype == DType::f32 && t.a.k_stride == 1;
                          });
    return in_place ? RowSource::in_place : RowSource::packed;
  }
  /// The segments in a block; an empty one if the sum has no k.
  std::vector<Segment> segments_of(const Range& block) const {
    std::vector<Segment> segments;
    std::int64_t group = 0;
    for (const Term& term : terms_) {
      const std::int64_t begin = std::max(block.begin - term.first, std::int64_t{0});
      const std::int64_t size = std::min(block.begin + block.size - term.first, term.a.k) - begin;
      if (size <= 0 && total_depth_ > 0) continue;
      segments.push_back({&term, {begin, size}, group});
      group += ceil_div(size, kernel_.k_group);
    }
    return segments;
  }

  /// Bytes between panels of `width` lanes, including 64 that packing may write past the end.
  std::int64_t stride(int width) const {
    return round_up(PanelForm{width, kernel_.k_group}.bytes(depth_.size), 64) + 64;
  }

  std::int64_t max_rows() const {
    constexpr std::int64_t kWithTiles = 512, kInPlace = 4096;
    const std::int64_t max = depth_.count() == 1 ? kInPlace : kWithTiles;
    return source_ == RowSource::in_place ? max : std::min(max, kRowBytes / stride(kernel_.mr) * kernel_.mr);
  }
  std::int64_t max_columns() const {
    if (depth_.count() == 1) return g_.c.t.shape[1];
    return kTileBytes / (rows_.size * std::int64_t{sizeof(float)});
  }

  /// Byte offset of a segment in a panel of `width` lanes.
  static std::int64_t offset(const Segment& s, int width) { return s.group * width * 4; }

  void pack_row_panel(std::byte* to, std::int64_t row) const {
    const std::int64_t count = std::min<std::int64_t>(kernel_.mr, block_.rows.size - row);
    for (const Segment& s : block_.segments)
      pack_panel(to + offset(s, kernel_.mr), s.term->a, {block_.rows.begin + row, count, s.k.begin, s.k.size},
                 {kernel_.mr, kernel_.k_group});
  }
  void pack_rows() {
    const std::int64_t panels = ceil_div(block_.rows.size, kernel_.mr);
    for_ranges(ctx_, panels, 8, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t p = begin; p < end; ++p) pack_row_panel(packed_rows_ + p * stride(kernel_.mr), p * kernel_.mr);
    });
  }

  /// Tasks are strips of columns and, if there are too few strips for the threads, groups of rows, each of which packs
  /// the strip again. The division does not affect any sum.
  void multiply() {
    const std::int64_t tasks = kTasksPerThread * ctx_.pool().size();
    const bool narrow = ceil_div(block_.columns.size, kernel_.strip) < tasks;
    const std::int64_t width = narrow ? round_up(kernel_.strip / 2, kernel_.nr) : kernel_.strip;
    const Cut strips(block_.columns.size, width, kernel_.nr);
    const std::int64_t wanted = ceil_div(tasks, strips.count());
    const std::int64_t rows = std::max(kFewestRows, ceil_div(block_.rows.size, wanted));
    const Cut groups(block_.rows.size, rows, kernel_.mr);
    const std::int64_t all = groups.count() * strips.count();
    ctx_.pool().run(all, [&](std::int64_t task, int worker) {
      std::byte* const space = ctx_.workspace(worker).data();
      std::byte* const strip = space + Ctx::kWorkspaceBytes - kStripBytes;
      const Range columns = strips.at(task % strips.count()), group = groups.at(task / strips.count());
      pack_strip(strip, columns);
      const std::int64_t next = task + ctx_.pool().size();  // what this thread most likely does next
      multiply_strip({strip, space, columns, group, next < all ? strips.at(next % strips.count()) : Range{}});
    });
  }
  void pack_strip(std::byte* strip, const Range& columns) const {
    for (std::int64_t j = 0; j < columns.size; j += kernel_.nr, strip += stride(kernel_.nr)) {
      const std::int64_t count = std::min<std::int64_t>(kernel_.nr, columns.size - j);
      const int width = static_cast<int>(round_up(count, kernel_.lanes));
      for (const Segment& s : block_.segments)
        pack_panel(strip + offset(s, width), s.term->b,
                   {block_.columns.begin + columns.begin + j, count, s.k.begin, s.k.size}, {width, kernel_.k_group});
    }
  }
  /// Part `part` of `parts` of a task's work.
  struct Progress {
    std::int64_t part, parts;

    Range of(std::int64_t n) const { return {n * part / parts, n * (part + 1) / parts - n * part / parts}; }
  };
  struct Task {
    const std::byte* strip;
    std::byte* row_panel;  ///< memory for one panel
    Range columns, group;
    Range next;  ///< columns of the next task, or none
  };
  void multiply_strip(const Task& task) {
    const std::int64_t mr = kernel_.mr, nr = kernel_.nr, end = task.group.begin + task.group.size;
    const std::int64_t across = ceil_div(task.columns.size, nr), down = ceil_div(task.group.size, mr);
    for (std::int64_t i = 0; i < down; ++i) {
      const std::int64_t row = task.group.begin + i * mr;
      prefetch_columns(task.next, {i, down});
      const std::byte* rows = nullptr;
      if (source_ == RowSource::packed) rows = packed_rows_ + row / mr * stride(kernel_.mr);
      if (source_ == RowSource::packed_late) pack_row_panel(task.row_panel, row), rows = task.row_panel;
      for (std::int64_t j = 0; j < across; ++j) {
        prefetch_rows(row + mr, end, {j, across});
        multiply_tile(row, task.columns.begin + j * nr, {rows, task.strip + j * stride(kernel_.nr)});
      }
    }
  }

  /// Prefetches the columns that are packed next into the level-2 cache while others are multiplied.
  void prefetch_columns(const Range& columns, const Progress& progress) const {
    constexpr std::int64_t kLine = 64;
    if (columns.size == 0) return;
    for (const Segment& s : block_.segments) {
      const Operand& b = s.term->b;
      const std::int64_t element = static_cast<std::int64_t>(size_of(b.dtype));
      const bool deep = b.k_stride == 1;
      const std::int64_t runs = deep ? columns.size : s.k.size, length = (deep ? s.k.size : columns.size) * element;
      const std::byte* first =
          b.data + ((block_.columns.begin + columns.begin) * b.lane_stride + s.k.begin * b.k_stride) * element;
      const Range mine = progress.of(runs);
      for (std::int64_t run = mine.begin; run < mine.begin + mine.size; ++run)
        for (std::int64_t at = 0; at < length; at += kLine)
          __builtin_prefetch(first + run * (deep ? b.lane_stride : b.k_stride) * element + at, 0, 2);
    }
  }

  /// While one row of tiles is computed, the next rows are prefetched: they may be far apart in memory, out of reach of
  /// the hardware prefetcher.
  void prefetch_rows(std::int64_t row, std::int64_t end, const Progress& progress) const {
    if (source_ != RowSource::in_place) return;
    const std::int64_t rows = std::min<std::int64_t>(kernel_.mr, end - row);
    for (const Segment& s : block_.segments) {
      const std::int64_t lines = ceil_div(s.k.size * 4, 64);
      const Range mine = progress.of(lines * std::max<std::int64_t>(rows, 0));
      for (std::int64_t i = mine.begin; i < mine.begin + mine.size; ++i)
        __builtin_prefetch(in_place(s, row + i / lines) + i % lines * 16);
    }
  }
  const float* in_place(const Segment& s, std::int64_t row) const {
    const Operand& a = s.term->a;
    return reinterpret_cast<const float*>(a.data) + (block_.rows.begin + row) * a.lane_stride + s.k.begin;
  }

  struct Panels {
    const std::byte *rows, *columns;  ///< rows: only if they are packed
  };
  /// Multiplies the tile whose upper left element is (row, column) of the block.
  void multiply_tile(std::int64_t row, std::int64_t column, const Panels& panels) {
    alignas(64) float once[kMaxTile];
    const std::int64_t rows = std::min<std::int64_t>(kernel_.mr, block_.rows.size - row);
    const std::int64_t columns = std::min<std::int64_t>(kernel_.nr, block_.columns.size - column);
    const std::int64_t vectors = ceil_div(columns, kernel_.lanes);
    const auto width = static_cast<int>(vectors * kernel_.lanes);
    TileCall call{.rows = rows, .b_group = width, .tile_row = kernel_.nr, .add = !block_.first};
    const MultiplyTile run = tile_function(kernel_, rows, vectors);
    call.tile = block_.first && block_.last ? once : tile_at(row, column);
    for (const Segment& s : block_.segments) {
      call.groups = ceil_div(s.k.size, kernel_.k_group);
      call.b = panels.columns + offset(s, width);
      if (panels.rows) {
        call.a = panels.rows + offset(s, kernel_.mr);
        call.a_row = 1, call.a_group = kernel_.mr;
      } else {
        call.a = in_place(s, row);
        call.a_row = s.term->a.lane_stride, call.a_group = 1;
      }
      run(call);
      call.add = true;
    }
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

  static constexpr std::int64_t kMaxTile = 8 * 48;
  Ctx& ctx_;
  const Gemm& g_;
  const TileKernel& kernel_;
  FinishTile finish_;
  std::vector<Term> terms_;
  std::int64_t total_depth_;
  RowSource source_;
  Cut depth_, rows_, columns_;
  std::byte* packed_rows_;
  float* tiles_;
  Block block_{};
};

}  // namespace

MultiplyTile tile_function(const TileKernel& kernel, std::int64_t rows, std::int64_t vectors) {
  const int* const height = std::lower_bound(kernel.heights, kernel.heights + TileKernel::kHeights, rows);
  return kernel.run[height - kernel.heights][vectors - 1];
}

void gemm_blocked(Ctx& ctx, const Gemm& g) {
  Blocked(ctx, g).run();
}

}  // namespace qtrain::ops
