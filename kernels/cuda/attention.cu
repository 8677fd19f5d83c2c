#include "kernels/attention.h"

#include "kernels/cuda/elements.cuh"

/// Attention by plain loops: a thread per token and head, for any head size.
namespace qtrain::ops {
namespace {

constexpr int kMaxHead = 256;

struct Sizes {
  const std::int32_t* cu;
  int segments, tokens, heads, groups, width, window;  ///< groups: key heads; width: of a head
  float scale;

  /// The first and the end of token t's segment.
  __device__ int2 segment(int t) const {
    int low = 0, high = segments;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (cu[middle] <= t ? low : high) = middle;
    }
    return {cu[low], cu[low + 1]};
  }
  __device__ std::int64_t query(std::int64_t t, int head) const { return (t * heads + head) * width; }
  __device__ std::int64_t key(std::int64_t t, int group) const { return (t * groups + group) * width; }
};

template <class T>
__device__ float dot(const T* a, const T* b, int n) {
  float sum = 0;
  for (int d = 0; d < n; ++d) sum += to_float(a[d]) * to_float(b[d]);
  return sum;
}

template <class T>
struct Forward {
  T* y;
  float* lse;
  const T *q, *k, *v;
  Sizes sizes;

  __device__ void head_row(int t, int head) const {
    const Sizes& n = sizes;
    const int group = head / (n.heads / n.groups);
    const int begin = n.window > 0 ? max(n.segment(t).x, t + 1 - n.window) : n.segment(t).x;
    float out[kMaxHead], max = -INFINITY, sum = 0;
    for (int d = 0; d < n.width; ++d) out[d] = 0;
    for (int j = begin; j <= t; ++j) {
      const float score = dot(q + n.query(t, head), k + n.key(j, group), n.width) * n.scale;
      const float larger = score > max || score != score ? score : max, fade = expf(max - larger);
      const float p = expf(score - larger);
      sum = sum * fade + p;
      for (int d = 0; d < n.width; ++d) out[d] = out[d] * fade + p * to_float(v[n.key(j, group) + d]);
      max = larger;
    }
    for (int d = 0; d < n.width; ++d) y[n.query(t, head) + d] = from_float<T>(out[d] / sum);
    lse[std::int64_t{head} * n.tokens + t] = max + logf(sum);
  }

  template <int N>
  __device__ void at(std::int64_t i) const {
    head_row(static_cast<int>(i / sizes.heads), static_cast<int>(i % sizes.heads));
  }
};

template <class T>
struct Gradients {
  Target<T> dq, dk, dv;
  const T *dy, *y, *q, *k, *v;
  const float* lse;
  Sizes sizes;

  /// p_ij and the gradient of its score (without the scale).
  __device__ float2 weight(int i, int j, int head) const {
    const Sizes& n = sizes;
    const int group = head / (n.heads / n.groups);
    const std::int64_t at_q = n.query(i, head), at_k = n.key(j, group);
    const float p = expf(dot(q + at_q, k + at_k, n.width) * n.scale - lse[std::int64_t{head} * n.tokens + i]);
    return {p, p * (dot(dy + at_q, v + at_k, n.width) - dot(dy + at_q, y + at_q, n.width))};
  }
};

template <class T>
struct QueryGrad : Gradients<T> {
  template <int N>
  __device__ void at(std::int64_t index) const {
    const Sizes& n = this->sizes;
    const int i = static_cast<int>(index / n.heads), head = static_cast<int>(index % n.heads);
    const int begin = n.window > 0 ? max(n.segment(i).x, i + 1 - n.window) : n.segment(i).x;
    float sum[kMaxHead];
    for (int d = 0; d < n.width; ++d) sum[d] = 0;
    for (int j = begin; j <= i; ++j) {
      const float g = this->weight(i, j, head).y * n.scale;
      const T* row = this->k + n.key(j, head / (n.heads / n.groups));
      for (int d = 0; d < n.width; ++d) sum[d] += g * to_float(row[d]);
    }
    for (int d = 0; d < n.width; ++d) this->dq.put(n.query(i, head) + d, sum[d]);
  }
};

template <class T>
struct KeyGrad : Gradients<T> {
  template <int N>
  __device__ void at(std::int64_t index) const {
    const Sizes& n = this->sizes;
    const int j = static_cast<int>(index / n.groups), group = static_cast<int>(index % n.groups);
    const int end = n.window > 0 ? min(n.segment(j).y, j + n.window) : n.segment(j).y, share = n.heads / n.groups;
    float dk[kMaxHead], dv[kMaxHead];
    for (int d = 0; d < n.width; ++d) dk[d] = dv[d] = 0;
    for (int head = group * share; head < (group + 1) * share; ++head)
      for (int i = j; i < end; ++i) {
        const float2 w = this->weight(i, j, head);
        const std::int64_t at_q = n.query(i, head);
        for (int d = 0; d < n.width; ++d) {
          dk[d] += w.y * n.scale * to_float(this->q[at_q + d]);
          dv[d] += w.x * to_float(this->dy[at_q + d]);
        }
      }
    for (int d = 0; d < n.width; ++d) {
      if (this->dk.data) this->dk.put(n.key(j, group) + d, dk[d]);
      if (this->dv.data) this->dv.put(n.key(j, group) + d, dv[d]);
    }
  }
};

template <class Op>
Sizes sizes_of(const Op& a) {
  check(a.q.shape[2] <= kMaxHead, "attention: a head of more than 256 elements");
  return {.cu = a.cu_seqlens.template as<std::int32_t>(),
          .segments = static_cast<int>(a.cu_seqlens.numel() - 1),
          .tokens = static_cast<int>(a.q.shape[0]),
          .heads = static_cast<int>(a.q.shape[1]),
          .groups = static_cast<int>(a.k.shape[1]),
          .width = static_cast<int>(a.q.shape[2]),
          .window = static_cast<int>(a.window),
          .scale = static_cast<float>(a.scale)};
}

}  // namespace

void run_cuda(Ctx& ctx, const Attention& a) {
  dispatch_storage(a.q.dtype, [&]<class T>() {
    const Forward<T> body{.y = a.y.as<T>(),
                          .lse = a.lse.as<float>(),
                          .q = a.q.as<T>(),
                          .k = a.k.as<T>(),
                          .v = a.v.as<T>(),
                          .sizes = sizes_of(a)};
    launch_elements<1>(ctx, "attention", a.q.shape[0] * a.q.shape[1], body);
  });
}

void run_cuda(Ctx& ctx, const AttentionGrad& a) {
  dispatch_storage(a.q.dtype, [&]<class T>() {
    const Gradients<T> args{.dq = target_of<T>(a.dq),
                            .dk = target_of<T>(a.dk),
                            .dv = target_of<T>(a.dv),
                            .dy = a.dy.as<T>(),
                            .y = a.y.as<T>(),
                            .q = a.q.as<T>(),
                            .k = a.k.as<T>(),
                            .v = a.v.as<T>(),
                            .lse = a.lse.as<float>(),
                            .sizes = sizes_of(a)};
    if (a.dq.wanted()) launch_elements<1>(ctx, "attention_dq", a.q.shape[0] * a.q.shape[1], QueryGrad<T>{args});
    if (a.dk.wanted() || a.dv.wanted())
      launch_elements<1>(ctx, "attention_dkdv", a.k.shape[0] * a.k.shape[1], KeyGrad<T>{args});
  });
}

}  // namespace qtrain::ops
