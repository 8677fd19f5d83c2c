#include "kernels/cpu/attention_blocked.h"

namespace qtrain::ops {
namespace {

using namespace blocked;

enum class Wanted : std::uint8_t { dq, dkv, all };

/// The blocks of queries and keys, of one segment and key head, that a task processes, and what it computes. Each
/// element of dq, dk and dv is written by one task.
struct Task {
  Segment segment;
  std::int64_t key_head;
  Span queries, keys;
  std::int64_t first_head, heads;
  Wanted wanted;
};

template <class T>
class Backward {
 public:
  Backward(Ctx& ctx, const AttentionGrad& a)
      : ctx_(ctx),
        a_(a),
        kernel_(tile_kernel(MatmulPrecision::storage)),
        n_(Heads::of(a)),
        q_(a.q.as<T>()),
        k_(a.k.as<T>()),
        v_(a.v.as<T>()),
        y_(a.y.as<T>()),
        dy_(a.dy.as<T>()),
        lse_(a.lse.as<float>()) {}

  void run() {
    const std::vector<Task> tasks = cut();
    ctx_.pool().run(static_cast<std::int64_t>(tasks.size()), [&](std::int64_t i, int worker) {
      Sweep(*this, tasks[static_cast<std::size_t>(i)], Scratch(ctx_.workspace(worker))).run();
    });
  }

 private:
  static constexpr std::int64_t kMaxQueryGrads = 1 << 17;  // f32 elements of dq that a task holds: 512 KiB

  /// Short segments: one task per key head does everything. Long segments: tasks per block of queries for dq, and per
  /// block of keys for dk and dv; this computes the scores twice but needs no sum over tasks.
  std::vector<Task> cut() const {
    std::vector<Task> tasks;
    const bool query_part = a_.dq.wanted(), key_part = a_.dk.wanted() || a_.dv.wanted();
    for (const Segment& s : segments_of(a_.cu_seqlens, n_.T, n_.queries)) {
      const Span queries{s.first_query, s.queries()}, keys{s.begin, s.size()};
      const bool is_short = n_.group() * round_up(queries.size, kQueries) * n_.width() <= kMaxQueryGrads;
      for (std::int64_t g = 0; g < n_.Hkv; ++g) {
        const Task task{s, g, queries, keys, g * n_.group(), n_.group(), Wanted::all};
        if (is_short && query_part && key_part) {
          tasks.push_back(task);
          continue;
        }
        if (query_part) add_query_tasks(tasks, task);
        if (key_part) add_key_tasks(tasks, task);
      }
    }
    return tasks;
  }
  void add_query_tasks(std::vector<Task>& tasks, Task task) const {
    task.wanted = Wanted::dq;
    const std::int64_t heads = std::clamp<std::int64_t>(kMaxQueryGrads / (kQueries * n_.width()), 1, n_.group());
    for (std::int64_t begin = task.segment.first_query; begin < task.segment.end; begin += kQueries)
      for (std::int64_t h = 0; h < n_.group(); h += heads) {
        task.queries = {begin, std::min(kQueries, task.segment.end - begin)};
        task.first_head = task.key_head * n_.group() + h;
        task.heads = std::min(heads, n_.group() - h);
        tasks.push_back(task);
      }
  }
  void add_key_tasks(std::vector<Task>& tasks, Task task) const {
    task.wanted = Wanted::dkv;
    for (std::int64_t begin = task.segment.begin; begin < task.segment.end; begin += kKeys) {
      task.keys = {begin, std::min(kKeys, task.segment.end - begin)};
      tasks.push_back(task);
    }
  }

  class Sweep;

  Ctx& ctx_;
  const AttentionGrad& a_;
  const TileKernel& kernel_;
  Heads n_;
  const T *q_, *k_, *v_, *y_, *dy_;
  const float* lse_;
};

/// Runs one task: for each block of keys, for each head, for each block of queries that sees it.
template <class T>
class Backward<T>::Sweep {
 public:
  Sweep(const Backward& op, const Task& task, Scratch scratch)
      : op_(op), n_(op.n_), kernel_(op.kernel_), task_(task), width_(op.n_.width()), spare_(op.kernel_.mr) {
    dq_rows_ = round_up(task.queries.size, kQueries) + spare_;
    if (wants_queries()) dq_ = scratch.take(task.heads * dq_rows_ * width_);
    if (wants_keys()) dk_ = scratch.take((kKeys + spare_) * width_), dv_ = scratch.take((kKeys + spare_) * width_);
    delta_ = scratch.take(kQueries);
    p_ = scratch.take((kQueries + spare_) * kKeys), ds_ = scratch.take((kQueries + spare_) * kKeys);
    key_columns_ = scratch.take(kKeys * n_.D + kPanel), value_columns_ = scratch.take(kKeys * n_.D + kPanel);
    key_copy_ = scratch.take(kKeys * width_);
    query_copy_ = scratch.take(kQueries * width_), dy_copy_ = scratch.take(kQueries * width_);
  }

  void run() {
    if (wants_queries()) std::fill_n(dq_, task_.heads * dq_rows_ * width_, 0.F);
    for (std::int64_t begin = task_.keys.begin; begin < task_.keys.end(); begin += kKeys) {
      const Span keys{begin, std::min(kKeys, task_.keys.end() - begin)};
      if (meet(task_.queries, keys, n_.window)) key_block(keys);
    }
    if (wants_queries()) write_queries();
  }

 private:
  bool wants_queries() const { return task_.wanted != Wanted::dkv; }
  bool wants_keys() const { return task_.wanted != Wanted::dq; }

  void key_block(const Span& keys) {
    const HeadRows<T> k = n_.key(op_.k_, keys.begin, task_.key_head, keys.size);
    const Keys packed{columns_of(k, key_columns_),
                      columns_of(n_.key(op_.v_, keys.begin, task_.key_head, keys.size), value_columns_),
                      rows_of(k, key_copy_)};
    if (wants_keys()) {
      std::fill_n(dk_, (kKeys + spare_) * width_, 0.F);
      std::fill_n(dv_, (kKeys + spare_) * width_, 0.F);
    }
    for (std::int64_t h = 0; h < task_.heads; ++h)
      for (std::int64_t begin = task_.queries.begin; begin < task_.queries.end(); begin += kQueries) {
        const Span queries{begin, std::min(kQueries, task_.queries.end() - begin)};
        if (meet(queries, keys, n_.window)) pair({queries, keys, task_.first_head + h}, packed);
      }
    if (wants_keys()) write_keys(keys);
  }

  struct Keys {
    Right key_columns, value_columns;
    Rows keys;
  };
  struct Pair {
    Span queries, keys;
    std::int64_t head;
  };
  void pair(const Pair& at, const Keys& x) {
    const Rows q = rows_of(n_.query(op_.q_, at.queries.begin, at.head, at.queries.size), query_copy_);
    const Rows dy = rows_of(n_.query(op_.dy_, at.queries.begin, at.head, at.queries.size), dy_copy_);
    for (std::int64_t i = 0; i < at.queries.size; ++i) {
      const std::int64_t row = n_.of_query(at.queries.begin + i, at.head);
      delta_[i] = simd::dot<float>(op_.dy_ + row, op_.y_ + row, n_.D);
    }
    for (std::int64_t row = 0; row < at.queries.size; row += kernel_.mr) score_rows(at, row, {q, dy}, x);
    if (wants_keys()) add_to_keys(at, q, dy);
  }

  struct Queries {
    Rows q, dy;
  };
  /// Computes p and ds for the rows of one tile, and their contribution to dq = ds k.
  void score_rows(const Pair& at, std::int64_t row, const Queries& x, const Keys& keys) {
    const std::int64_t rows = std::min<std::int64_t>(kernel_.mr, at.queries.size - row),
                       all = round_up(at.keys.size, kPanel);
    const std::int64_t seen = keys_seen(at.queries, at.keys, row, rows), padded = round_up(seen, kPanel);
    float *p = p_ + row * kKeys, *ds = ds_ + row * kKeys;
    const Extent n{rows, padded, n_.D};
    multiply(kernel_, {x.q.data + row * x.q.step, x.q.step, 1}, keys.key_columns, {p, kKeys}, n, Write::store);
    multiply(kernel_, {x.dy.data + row * x.dy.step, x.dy.step, 1}, keys.value_columns, {ds, kKeys}, n, Write::store);
    for (std::int64_t r = 0; r < rows; ++r) {
      const float lse = op_.lse_[n_.of_lse(at.queries.begin + row + r, at.head)];
      differentiate({p + r * kKeys, ds + r * kKeys, lse, delta_[row + r]},
                    visible(at.queries, at.keys, row + r, n_.window), all);
    }
    if (!wants_queries() || seen == 0) return;
    float* dq = dq_ + ((at.head - task_.first_head) * dq_rows_ + at.queries.begin - task_.queries.begin + row) * width_;
    multiply(kernel_, {ds, kKeys, 1}, keys.keys.right(kernel_), {dq, width_}, {rows, width_, seen}, Write::add);
  }

  struct ScoreRow {
    float *p, *ds;
    float lse, delta;
  };
  /// Converts dot products to p = e^(score - lse), and dp to ds = scale * p * (dp - delta); both are 0 outside the
  /// visible range.
  void differentiate(const ScoreRow& row, const Visible& range, std::int64_t all) const {
    n_.capped() ? differentiate_capped(row, range) : differentiate_plain(row, range);
    for (float* x : {row.p, row.ds}) {
      std::fill(x, x + range.first, 0.F);
      std::fill(x + range.last, x + all, 0.F);
    }
  }
  void differentiate_plain(const ScoreRow& row, const Visible& range) const {
    const simd::Vec<float> scale = simd::broadcast(n_.scale), lse = simd::broadcast(row.lse),
                           delta = simd::broadcast(row.delta);
    for (std::int64_t j = range.begin(); j < range.end(); j += 8) {
      const simd::Vec<float> e = simd::exp(simd::load<float>(row.p + j) * scale - lse);
      simd::store<float>(row.p + j, e);
      simd::store<float>(row.ds + j, scale * e * (simd::load<float>(row.ds + j) - delta));
    }
  }
  /// Likewise, including the derivative of tanh.
  void differentiate_capped(const ScoreRow& row, const Visible& range) const {
    const simd::Vec<float> cap = simd::broadcast(n_.softcap), inner = simd::broadcast(n_.tanh_scale()),
                           scale = simd::broadcast(n_.scale), lse = simd::broadcast(row.lse),
                           delta = simd::broadcast(row.delta);
    for (std::int64_t j = range.begin(); j < range.end(); j += 8) {
      const simd::Vec<float> t = simd::tanh(simd::load<float>(row.p + j) * inner), e = simd::exp(t * cap - lse);
      simd::store<float>(row.p + j, e);
      simd::store<float>(row.ds + j, scale * e * (simd::load<float>(row.ds + j) - delta) * (1 - t * t));
    }
  }

  /// dv += p^T dy, dk += ds^T q. The keys of a tile are only seen by queries from the tile's first key on.
  void add_to_keys(const Pair& at, const Rows& q, const Rows& dy) {
    for (std::int64_t key = 0; key < at.keys.size; key += kernel_.mr) {
      const std::int64_t skip = std::max<std::int64_t>(0, at.keys.begin + key - at.queries.begin);
      if (skip >= at.queries.size) break;
      const Extent n{std::min<std::int64_t>(kernel_.mr, at.keys.size - key), width_, at.queries.size - skip};
      const auto from = [&](const Rows& r) { return Rows{r.data + skip * r.step, r.step}.right(kernel_); };
      multiply(kernel_, {p_ + skip * kKeys + key, 1, kKeys}, from(dy), {dv_ + key * width_, width_}, n, Write::add);
      multiply(kernel_, {ds_ + skip * kKeys + key, 1, kKeys}, from(q), {dk_ + key * width_, width_}, n, Write::add);
    }
  }

  struct Written {
    const float* from;
    std::int64_t offset, step, count;
  };
  void write_rows(const Sink& sink, const Written& w) const {
    if (!sink.wanted()) return;
    T* to = sink.t.as<T>() + w.offset;
    for (std::int64_t i = 0; i < w.count; ++i)
      simd::each<float>(n_.D, [&](std::int64_t d, auto lanes) {
        write<float>(to + i * w.step + d, simd::load<float>(w.from + i * width_ + d), lanes, sink.mode);
      });
  }
  void write_keys(const Span& keys) const {
    const std::int64_t offset = (keys.begin * n_.Hkv + task_.key_head) * n_.D, step = n_.Hkv * n_.D;
    write_rows(op_.a_.dk, {dk_, offset, step, keys.size});
    write_rows(op_.a_.dv, {dv_, offset, step, keys.size});
  }
  void write_queries() const {
    for (std::int64_t h = 0; h < task_.heads; ++h)
      write_rows(op_.a_.dq, {dq_ + h * dq_rows_ * width_, n_.of_query(task_.queries.begin, task_.first_head + h),
                             n_.Hq * n_.D, task_.queries.size});
  }

  const Backward& op_;
  const Heads& n_;
  const TileKernel& kernel_;
  Task task_;
  std::int64_t width_, spare_, dq_rows_;
  float *dq_ = nullptr, *dk_ = nullptr, *dv_ = nullptr;
  float *delta_, *p_, *ds_, *key_columns_, *value_columns_, *key_copy_, *query_copy_, *dy_copy_;
};

}  // namespace

template <class T>
void attention_grad_blocked(Ctx& ctx, const AttentionGrad& a) {
  Backward<T>(ctx, a).run();
}

template void attention_grad_blocked<float>(Ctx&, const AttentionGrad&);
template void attention_grad_blocked<Bf16>(Ctx&, const AttentionGrad&);

}  // namespace qtrain::ops
