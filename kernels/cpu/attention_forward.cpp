#include <limits>

#include "kernels/cpu/attention_blocked.h"

namespace qtrain::ops {
namespace {

using namespace blocked;

constexpr float kNone = -std::numeric_limits<float>::infinity();

/// A block of queries, for some heads of one key head.
struct Task {
  std::int64_t first_key;
  Span queries;
  std::int64_t key_head, first_head, heads;
};

/// The online softmax of each row of a task: maximum score, sum of exponentials, and weighted sum of values.
struct Running {
  float *max, *sum, *values;
};

template <class T>
class Forward {
 public:
  Forward(Ctx& ctx, const Attention& a)
      : ctx_(ctx),
        a_(a),
        kernel_(tile_kernel(MatmulPrecision::storage)),
        n_(Heads::of(a)),
        q_(a.q.as<T>()),
        k_(a.k.as<T>()),
        v_(a.v.as<T>()),
        y_(a.y.as<T>()),
        lse_(a.lse.as<float>()),
        sinks_(a.sinks ? a.sinks.as<float>() : nullptr) {}

  void run() {
    const std::vector<Task> tasks = cut();
    ctx_.pool().run(static_cast<std::int64_t>(tasks.size()), [&](std::int64_t i, int worker) {
      attend(tasks[static_cast<std::size_t>(i)], Scratch(ctx_.workspace(worker)));
    });
  }

 private:
  static constexpr std::int64_t kMaxValues = 1 << 18;  // f32 values of all heads of a task: 1 MiB

  // Late queries see the most keys. They come first, so that no long task is left for the end. Blocks are aligned to
  // the start of the segment, wherever its queries start, so that each query processes the same blocks of keys.
  std::vector<Task> cut() const {
    const std::int64_t heads = std::clamp<std::int64_t>(kMaxValues / (kQueries * n_.width()), 1, n_.group());
    std::vector<Task> tasks;
    for (const Segment& s : segments_of(a_.cu_seqlens, n_.T, n_.queries))
      for (std::int64_t block = ceil_div(s.size(), kQueries) - 1; block >= (s.first_query - s.begin) / kQueries;
           --block)
        for (std::int64_t h = 0;
             h<n_.Hq; h += h % n_.group() + heads> n_.group() ? n_.group() - h % n_.group() : heads) {
          const std::int64_t left = n_.group() - h % n_.group(), grid = s.begin + block * kQueries;
          const std::int64_t begin = std::max(grid, s.first_query), end = std::min(grid + kQueries, s.end);
          tasks.push_back(
              {first_key(grid, s.begin, n_.window), {begin, end - begin}, h / n_.group(), h, std::min(heads, left)});
        }
    return tasks;
  }

  void attend(const Task& task, Scratch scratch) const {
    const std::int64_t height = kQueries + kernel_.mr, width = n_.width();
    const Running state{scratch.take(task.heads * kQueries), scratch.take(task.heads * kQueries),
                        scratch.take(task.heads * height * width)};
    std::fill_n(state.max, task.heads * kQueries, kNone);
    std::fill_n(state.sum, task.heads * kQueries, 0.F);
    std::fill_n(state.values, task.heads * height * width, 0.F);
    float* key_columns = scratch.take(kKeys * n_.D + kPanel);
    float* value_rows = scratch.take(kKeys * width);
    float* query_rows = scratch.take(kQueries * width);
    float* scores = scratch.take(kernel_.mr * kKeys);
    for (std::int64_t begin = task.first_key; begin < task.queries.end(); begin += kKeys) {
      const Span keys{begin, std::min(kKeys, task.queries.end() - begin)};
      const Right columns = columns_of(n_.key(k_, begin, task.key_head, keys.size), key_columns);
      const Rows values = rows_of(n_.key(v_, begin, task.key_head, keys.size), value_rows);
      for (std::int64_t h = 0; h < task.heads; ++h) {
        const Rows rows = rows_of(n_.query(q_, task.queries.begin, task.first_head + h, task.queries.size), query_rows);
        const Running head{state.max + h * kQueries, state.sum + h * kQueries, state.values + h * height * width};
        for (std::int64_t row = 0; row < task.queries.size; row += kernel_.mr)
          add_keys({task.queries, keys, row}, {rows, columns, values}, head, scores);
      }
    }
    for (std::int64_t h = 0; h < task.heads; ++h)
      finish(task, task.first_head + h,
             {state.max + h * kQueries, state.sum + h * kQueries, state.values + h * height * width});
  }

  struct Place {
    Span queries, keys;
    std::int64_t row;
  };
  struct Operands {
    Rows queries;
    Right keys;
    Rows values;
  };
  /// Updates the softmax of one tile's rows with a block of keys.
  void add_keys(const Place& at, const Operands& x, const Running& state, float* scores) const {
    const std::int64_t rows = std::min<std::int64_t>(kernel_.mr, at.queries.size - at.row);
    const std::int64_t seen = keys_seen(at.queries, at.keys, at.row, rows), padded = round_up(seen, kPanel);
    if (seen == 0) return;
    const Left queries{x.queries.data + at.row * x.queries.step, x.queries.step, 1};
    multiply(kernel_, queries, x.keys, {scores, kKeys}, {rows, padded, n_.D}, Write::store);
    for (std::int64_t r = 0; r < rows; ++r) {
      const Visible range = visible(at.queries, at.keys, at.row + r, n_.window);
      continue_row(scores + r * kKeys, {range, padded}, state, at.row + r);
    }
    const std::int64_t width = n_.width();
    multiply(kernel_, {scores, kKeys, 1}, x.values.right(kernel_), {state.values + at.row * width, width},
             {rows, width, seen}, Write::add);
  }

  struct RowRange {
    Visible seen;
    std::int64_t padded;
  };
  /// Converts dot products to e^(score - max), 0 outside the visible range; sum and values are rescaled to the new
  /// maximum.
  void continue_row(float* scores, const RowRange& range, const Running& state, std::int64_t row) const {
    const Visible& seen = range.seen;
    if (seen.first == seen.last) return std::fill(scores, scores + range.padded, 0.F);
    if (n_.capped()) simd::tanh_of(scores + seen.begin(), seen.end() - seen.begin(), n_.tanh_scale());
    std::fill(scores + seen.begin(), scores + seen.first, kNone);
    std::fill(scores + seen.last, scores + seen.end(), kNone);
    simd::Vec<float> top = simd::broadcast(kNone), sums{};
    for (std::int64_t j = seen.begin(); j < seen.end(); j += 8) top = simd::max(simd::load<float>(scores + j), top);
    const float max = std::max(state.max[row], simd::max_lane<float>(top) * n_.score_scale());
    const simd::Vec<float> scale = simd::broadcast(n_.score_scale()), shift = simd::broadcast(max);
    for (std::int64_t j = seen.begin(); j < seen.end(); j += 8) {
      const simd::Vec<float> p = simd::exp(simd::load<float>(scores + j) * scale - shift);
      simd::store<float>(scores + j, p);
      sums += p;
    }
    std::fill(scores, scores + seen.begin(), 0.F);
    std::fill(scores + seen.end(), scores + range.padded, 0.F);
    if (state.max[row] != max && state.sum[row] != 0) {
      const float factor = std::exp(state.max[row] - max);
      state.sum[row] *= factor;
      float* values = state.values + row * n_.width();
      for (std::int64_t d = 0; d < n_.width(); ++d) values[d] *= factor;
    }
    state.max[row] = max;
    state.sum[row] += simd::sum(sums);
  }

  /// A sink is one more score, whose value is zero: the online softmax takes one more step.
  float add_sink(std::int64_t head, float& max, float& sum) const {
    if (!sinks_) return 1;
    const float larger = std::max(max, sinks_[head]), fade = std::exp(max - larger);
    sum = sum * fade + std::exp(sinks_[head] - larger);
    max = larger;
    return fade;
  }

  void finish(const Task& task, std::int64_t head, const Running& state) const {
    for (std::int64_t i = 0; i < task.queries.size; ++i) {
      const float fade = add_sink(head, state.max[i], state.sum[i]);
      const simd::Vec<float> factor = simd::broadcast(fade / state.sum[i]);
      const float* values = state.values + i * n_.width();
      T* y = y_ + n_.of_query(task.queries.begin + i, head);
      simd::each<float>(n_.D, [&](std::int64_t d, auto lanes) {
        simd::store<float>(y + d, simd::load<float>(values + d) * factor, lanes);
      });
      lse_[n_.of_lse(task.queries.begin + i, head)] = state.max[i] + std::log(state.sum[i]);
    }
  }

  Ctx& ctx_;
  const Attention& a_;
  const TileKernel& kernel_;
  Heads n_;
  const T *q_, *k_, *v_;
  T* y_;
  float* lse_;
  const float* sinks_;  ///< null without sinks
};

}  // namespace

template <class T>
void attention_blocked(Ctx& ctx, const Attention& a) {
  Forward<T>(ctx, a).run();
}

template void attention_blocked<float>(Ctx&, const Attention&);
template void attention_blocked<Bf16>(Ctx&, const Attention&);

}  // namespace qtrain::ops
