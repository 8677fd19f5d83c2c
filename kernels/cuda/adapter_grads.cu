#include "kernels/adapter_grads.h"

#include <algorithm>
#include <array>

#include "kernels/cuda/attention_mma.cuh"
#include "kernels/cuda/elements.cuh"

/// A block takes some rows of dy and some columns of one layer, tile by tile: all row tiles of 128 columns, then the
/// next 128. A tile is in shared memory for both products: its rows times B are added to du, whose sums for all rows of
/// the block are in shared memory, and its columns times u to dB, in registers. What blocks add is written to scratch
/// memory and summed in order by a second kernel.
namespace qtrain::ops {
namespace {

constexpr int kTileRows = AdapterGrid::kTileRows, kTileColumns = AdapterGrid::kTileColumns, kGradStages = 3;
constexpr int kWarpRows = kTileRows / kAttentionWarps, kWarpColumns = kTileColumns / kAttentionWarps;
constexpr std::size_t kMaxShared = std::size_t{99} << 10;  ///< that every GPU with tensor cores has

/// R: the ranks of a tile, 16; adapters with fewer are filled up with zeros. With 32, sums would move as much as dy.
template <class T, int R>
struct AdapterTiles {
  struct Stage {
    Tile<T, kTileRows, kTileColumns> dy;
    Tile<T, kTileRows, R> u;
  };
  /// The sums of a tile of du, by thread.
  struct alignas(16) Sums {
    float v[R / 8][kAttentionThreads][4];
  };
  static constexpr int kMaxTiles =
      static_cast<int>((kMaxShared - kGradStages * sizeof(Stage) - sizeof(Tile<T, kTileColumns, R>)) / sizeof(Sums));

  Stage stages[kGradStages];
  Tile<T, kTileColumns, R> b;
  Sums du[kMaxTiles];
  static_assert(kMaxTiles * kTileRows == AdapterGrid::kMaxBlockRows);
};

struct AdapterLayer {
  const void *dy, *u, *b;
  void* copy;  ///< of dy, or null
  int columns, rank;
  int strips, first_strip, width;  ///< of blocks of columns; `width` columns each
  std::int64_t du, db;             ///< where their sums start in scratch memory
};
struct AdapterArgs {
  AdapterLayer layers[AdapterGrads::kMaxLayers];
  float* sums;
  std::int64_t dy_step, u_step, copy_step;
  int begin, end, rows;  ///< a launch takes rows [begin, end), and a block `rows` of them
  bool wide;             ///< whether B is f32
};

/// Writes 128 rows of B to a tile, rounded to T.
template <class T, class B, int R>
__device__ __forceinline__ void put_rows(Tile<T, kTileColumns, R>& tile, const B* b, int rows, int rank) {
  for (int i = static_cast<int>(threadIdx.x); i < kTileColumns * R / kChunk; i += kAttentionThreads) {
    const int row = i / (R / kChunk), chunk = i % (R / kChunk);
    float v[kChunk] = {};
    if (row < rows && chunk * kChunk < rank) load_floats(v, b + std::int64_t{row} * rank + chunk * kChunk);
    Pack<T, kChunk> out;
#pragma unroll
    for (int j = 0; j < kChunk; ++j) out.v[j] = from_float<T>(v[j]);
    store_pack<kChunk>(tile.v + tile.offset(row, chunk), out);
  }
}

/// Writes rows [0, end) of an accumulator, of which the lane's first is `row`, to rows of R elements.
template <int N>
__device__ __forceinline__ void put_part(float* to, const float (&c)[N][4], int row, int end) {
#pragma unroll
  for (int h = 0; h < 2; ++h)
    if (row + 8 * h < end) put_row(Target<float>{to}, std::int64_t{row + 8 * h} * (8 * N), c, h, 1.0f, 8 * N);
}

template <class T, int R>
class AdapterGradBlock {
 public:
  __device__ AdapterGradBlock(const AdapterArgs& a, const AdapterLayer& l, int strip)
      : a_(a),
        l_(l),
        first_(a.begin + static_cast<int>(blockIdx.y) * a.rows),
        end_(min(first_ + a.rows, a.end)),
        tiles_(ceil_div(end_ - first_, kTileRows)),
        strip_(strip),
        column_(strip * l.width),
        blocks_(ceil_div(min(l.columns - column_, l.width), kTileColumns)) {}

  __device__ void run() {
    for (int i = 0; i < kGradStages - 1; ++i) load();
    for (int block = 0; block < blocks_; ++block)
      for (int tile = 0; tile < tiles_; ++tile) {
        ptx::cp_async_wait<kGradStages - 2>();
        __syncthreads();  // this stage has arrived, and all threads have read the previous one
        load();
        if (tile == 0) begin_columns(column_ + block * kTileColumns);
        const auto& stage = shared().stages[stage_];
        stage_ = stage_ == kGradStages - 1 ? 0 : stage_ + 1;
        add_to_du(stage.dy, block, tile);
        if (l_.copy) copy_out(stage.dy, column_ + block * kTileColumns, first_ + tile * kTileRows);
        add_to_db(stage);
        if (tile == tiles_ - 1) put_db(column_ + block * kTileColumns);
      }
  }

 private:
  using Tiles = AdapterTiles<T, R>;
  __device__ static Tiles& shared() { return shared_memory<Tiles>(); }

  __device__ __forceinline__ void load() {
    if (load_block_ < blocks_) {
      auto& stage = shared().stages[load_stage_];
      const int column = column_ + load_block_ * kTileColumns, row = first_ + load_tile_ * kTileRows;
      copy_rows(stage.dy, HeadRows<T>{static_cast<const T*>(l_.dy) + column, a_.dy_step, end_, l_.columns - column},
                row);
      copy_rows(stage.u, HeadRows<T>{static_cast<const T*>(l_.u), a_.u_step, end_, l_.rank}, row);
      load_stage_ = load_stage_ == kGradStages - 1 ? 0 : load_stage_ + 1;
      if (++load_tile_ == tiles_) load_tile_ = 0, ++load_block_;
    }
    ptx::cp_async_commit();
  }

  __device__ __forceinline__ void begin_columns(int column) {
    auto& b = shared().b;
    const std::int64_t from = std::int64_t{column} * l_.rank;
    if (a_.wide)
      put_rows(b, static_cast<const float*>(l_.b) + from, l_.columns - column, l_.rank);
    else
      put_rows(b, static_cast<const T*>(l_.b) + from, l_.columns - column, l_.rank);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kTileColumns / 16; ++k)
#pragma unroll
      for (int j = 0; j < R / 16; ++j)
        ptx::ldmatrix_transposed(b_[k][j], b.v + b.offset(16 * k + lane_id() % 16, 2 * j + lane_id() / 16));
#pragma unroll
    for (auto& fragments : db_)
      for (auto& f : fragments)
        for (float& v : f) v = 0;
  }

  __device__ __forceinline__ void add_to_du(const Tile<T, kTileRows, kTileColumns>& dy, int block, int tile) {
    float du[R / 8][4] = {};
    auto& kept = shared().du[tile].v;
    if (block > 0)
#pragma unroll
      for (int j = 0; j < R / 8; ++j) load_floats(du[j], kept[j][threadIdx.x]);
#pragma unroll
    for (int k = 0; k < kTileColumns / 16; ++k) {
      std::uint32_t left[4];
      ptx::ldmatrix(left, dy.v + dy.offset(kWarpRows * warp_id() + lane_id() % 16, 2 * k + lane_id() / 16));
#pragma unroll
      for (int j = 0; j < R / 16; ++j) mma_pair<T>(du[2 * j], du[2 * j + 1], left, b_[k][j]);
    }
    if (block == blocks_ - 1) {
      const std::int64_t rows = a_.end - a_.begin;
      put_part(a_.sums + l_.du + strip_ * rows * R, du,
               first_ - a_.begin + tile * kTileRows + kWarpRows * warp_id() + lane_id() / 4, end_ - a_.begin);
    } else {
#pragma unroll
      for (int j = 0; j < R / 8; ++j) Target<float>{kept[j][threadIdx.x]}.put_pack(0, du[j]);
    }
  }

  __device__ __forceinline__ void add_to_db(const typename Tiles::Stage& stage) {
    const int lane = lane_id(), column = kWarpColumns * warp_id() / kChunk;
#pragma unroll
    for (int k = 0; k < kTileRows / 16; ++k) {
      std::uint32_t right[R / 16][4];
#pragma unroll
      for (int j = 0; j < R / 16; ++j)
        ptx::ldmatrix_transposed(right[j], stage.u.v + stage.u.offset(16 * k + lane % 16, 2 * j + lane / 16));
#pragma unroll
      for (int i = 0; i < kWarpColumns / 16; ++i) {
        std::uint32_t left[4];
        ptx::ldmatrix_transposed(
            left, stage.dy.v + stage.dy.offset(16 * k + lane / 16 * 8 + lane % 8, column + 2 * i + lane / 8 % 2));
#pragma unroll
        for (int j = 0; j < R / 16; ++j) mma_pair<T>(db_[i][2 * j], db_[i][2 * j + 1], left, right[j]);
      }
    }
  }

  __device__ __forceinline__ void copy_out(const Tile<T, kTileRows, kTileColumns>& dy, int column, int row) {
    constexpr int kAcross = kTileColumns / kChunk, kStep = kAttentionThreads / kAcross;
    const int chunk = static_cast<int>(threadIdx.x) % kAcross;
    if (column + chunk * kChunk >= l_.columns) return;
    T* const to = static_cast<T*>(l_.copy) + column + chunk * kChunk;
#pragma unroll
    for (int r = static_cast<int>(threadIdx.x) / kAcross; r < kTileRows; r += kStep)
      if (row + r < end_)
        store_pack<kChunk>(to + (row + r) * a_.copy_step, load_pack<kChunk>(dy.v + dy.offset(r, chunk)));
  }

  __device__ __forceinline__ void put_db(int column) {
    float* const to = a_.sums + l_.db + std::int64_t{blockIdx.y} * l_.columns * R;
#pragma unroll
    for (int i = 0; i < kWarpColumns / 16; ++i)
      put_part(to, db_[i], column + kWarpColumns * warp_id() + 16 * i + lane_id() / 4, l_.columns);
  }

  const AdapterArgs& a_;
  const AdapterLayer& l_;
  const int first_, end_, tiles_;      // rows of the block, and their tiles
  const int strip_, column_, blocks_;  // its columns in parts of kTileColumns
  int stage_ = 0, load_stage_ = 0, load_block_ = 0, load_tile_ = 0;
  std::uint32_t b_[kTileColumns / 16][R / 16][4];  // B of the current columns
  float db_[kWarpColumns / 16][R / 8][4];
};

template <class T, int R>
__global__ void __launch_bounds__(kAttentionThreads) adapter_grads_tiles(AdapterArgs a) {
  const int strip = static_cast<int>(blockIdx.x);
  AdapterLayer l = a.layers[0];
#pragma unroll
  for (std::size_t k = 1; k < AdapterGrads::kMaxLayers; ++k)
    if (strip >= l.first_strip + l.strips) l = a.layers[k];
  AdapterGradBlock<T, R>(a, l, strip - l.first_strip).run();
}

/// Adds the sums of all blocks. For each layer, the elements of du come first and then those of dB.
template <class T, int R>
struct AdapterAdder {
  struct Layer {
    const float *du_sums, *db_sums;
    T* du;
    Target<float> db;
    std::int64_t end;  ///< of the elements of this layer
    int columns, rank, strips;
    float scale;
  };
  Layer layers[AdapterGrads::kMaxLayers];
  std::int64_t du_step;
  int rows, splits;

  template <int N>
  __device__ void at(std::int64_t i) const {
    std::int64_t begin = 0;
    Layer l = layers[0];
#pragma unroll
    for (std::size_t k = 1; k < AdapterGrads::kMaxLayers; ++k)
      if (i >= l.end) begin = l.end, l = layers[k];
    const std::int64_t of_du = std::int64_t{rows} * R, own = i - begin;
    const bool is_du = own < of_du;
    const std::int64_t at = is_du ? own : own - of_du, row = at / R;
    const int rank = static_cast<int>(at % R);
    if (rank >= l.rank) return;
    const float* from = (is_du ? l.du_sums : l.db_sums) + at;
    const std::int64_t step = std::int64_t{is_du ? rows : l.columns} * R;
    const int parts = is_du ? l.strips : splits;
    float sum[N], next[N];
    load_floats(sum, from);
#pragma unroll 1
    for (int p = 1; p < parts; ++p) {
      load_floats(next, from + p * step);
#pragma unroll
      for (int j = 0; j < N; ++j) sum[j] += next[j];
    }
    if (!is_du) return l.db.template put_pack<N>(row * l.rank + rank, sum);
#pragma unroll
    for (int j = 0; j < N; ++j) sum[j] *= l.scale;
    Target<T>{l.du}.template put_pack<N>(row * du_step + rank, sum);
  }
};

/// A launch's strips of columns and splits of rows, and the f32 of their sums in scratch memory.
struct AdapterLaunch {
  int strips = 0, splits = 0;
  std::int64_t sums = 0;
};

/// Places the columns and sums of layers for a launch of rows [begin, end).
AdapterLaunch place(AdapterArgs& args, const AdapterGrid& grid, std::size_t layers) {
  const std::int64_t rows = args.end - args.begin;
  AdapterLaunch launch{.splits = static_cast<int>(grid.splits(rows))};
  args.rows = static_cast<int>(grid.rows);
  for (AdapterLayer& l : std::span(args.layers).first(layers)) {
    l.width = static_cast<int>(grid.columns);
    l.strips = static_cast<int>(grid.strips(l.columns));
    l.first_strip = launch.strips;
    launch.strips += l.strips;
    l.du = launch.sums;
    l.db = l.du + grid.du_sums(rows, l.columns);
    launch.sums = l.db + grid.db_sums(rows, l.columns);
  }
  return launch;
}

template <class T, int R>
void add_sums(Ctx& ctx, const AdapterGrads& op, const AdapterArgs& args, int splits) {
  AdapterAdder<T, R> adder{.layers = {}, .du_step = 0, .rows = args.end - args.begin, .splits = splits};
  std::int64_t end = 0;
  for (std::size_t i = 0; i < op.count(); ++i) {
    const AdapterGrads::Layer& l = op.layers[i];
    const AdapterLayer& sums = args.layers[i];
    adder.du_step = row_step(l.du, op.du_stride);
    end += std::int64_t{adder.rows + sums.columns} * R;
    Target<float> db = target_of<float>(l.db);
    db.adds = db.adds || args.begin > 0;
    adder.layers[i] = {.du_sums = args.sums + sums.du,
                       .db_sums = args.sums + sums.db,
                       .du = l.du.as<T>() + args.begin * adder.du_step,
                       .db = db,
                       .end = end,
                       .columns = sums.columns,
                       .rank = sums.rank,
                       .strips = sums.strips,
                       .scale = static_cast<float>(l.scale)};
  }
  launch_elements<4>(ctx, "adapter_grads", end, adder);
}

template <class T>
void compute(Ctx& ctx, const AdapterGrads& op) {
  constexpr int kRanks = AdapterGrads::kMaxRank;
  AdapterArgs args{};
  const std::size_t layers = op.count();
  std::array<std::int64_t, AdapterGrads::kMaxLayers> outputs{};
  for (std::size_t i = 0; i < layers; ++i) {
    const AdapterGrads::Layer& l = op.layers[i];
    outputs[i] = l.dy.shape[1];
    args.layers[i].dy = l.dy.data;
    args.layers[i].u = l.u.data;
    args.layers[i].b = l.b.data;
    args.layers[i].copy = l.copy.data;
    args.layers[i].columns = static_cast<int>(l.dy.shape[1]);
    args.layers[i].rank = static_cast<int>(l.u.shape[1]);
  }
  const AdapterGrads::Layer& first = op.layers.front();
  args.dy_step = row_step(first.dy, op.dy_stride);
  args.u_step = row_step(first.u, op.u_stride);
  args.copy_step = op.copy_stride;
  args.wide = first.b.dtype == DType::f32;
  const std::int64_t tokens = op.tokens();
  const AdapterGrid grid = AdapterGrid::of(tokens, std::span(outputs).first(layers), op.memory);
  for (std::int64_t begin = 0; begin < tokens; begin += grid.tokens) {
    args.begin = static_cast<int>(begin);
    args.end = static_cast<int>(std::min(begin + grid.tokens, tokens));
    const AdapterLaunch placed = place(args, grid, layers);
    const std::size_t bytes = static_cast<std::size_t>(placed.sums) * sizeof(float);
    check(bytes <= op.memory, "adapter_grads: sums do not fit into the memory");
    args.sums = reinterpret_cast<float*>(ctx.scratch(bytes));
    launch(ctx, "adapter_grads", adapter_grads_tiles<T, kRanks>,
           {dim3(static_cast<unsigned>(placed.strips), static_cast<unsigned>(placed.splits)), kAttentionThreads,
            sizeof(AdapterTiles<T, kRanks>)},
           args);
    add_sums<T, kRanks>(ctx, op, args, placed.splits);
  }
}

}  // namespace

void run_cuda(Ctx& ctx, const AdapterGrads& op) {
  if (!reads_once(ctx, op)) return apart(ctx, op);
  if (op.layers.front().dy.dtype == DType::bf16) return compute<Bf16>(ctx, op);
  compute<F16>(ctx, op);
}

}  // namespace qtrain::ops
