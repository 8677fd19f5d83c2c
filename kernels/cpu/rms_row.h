#pragma once
#include <vector>

#include "kernels/cpu/loops.h"

/// The RMS norm of one row and its gradient, shared by rms_norm and rope (norm per head).
namespace qtrain::ops {

/// weight + offset for the duration of an op; without an offset, the weight itself.
template <class A>
class OffsetWeight {
 public:
  OffsetWeight(ConstTensor weight, double offset) : data_(weight ? weight.as<A>() : nullptr) {
    if (!data_ || offset == 0) return;
    sums_.assign(data_, data_ + weight.numel());
    for (A& w : sums_) w += static_cast<A>(offset);
    data_ = sums_.data();
  }
  OffsetWeight(const OffsetWeight&) = delete;
  OffsetWeight& operator=(const OffsetWeight&) = delete;
  const A* data() const { return data_; }

 private:
  std::vector<A> sums_;
  const A* data_;
};

template <class A>
struct NormRow {
  A inv_rms;
  std::int64_t n;
};

/// 1 / sqrt(mean(x^2) + eps)
template <class T>
simd::Acc<T> inverse_rms(const T* x, std::int64_t n, double eps) {
  using A = simd::Acc<T>;
  return A{1} / std::sqrt(simd::dot<A>(x, x, n) / static_cast<A>(n) + static_cast<A>(eps));
}

/// y = x * inv_rms * weight
template <class T>
void normalize(T* y, const T* x, const simd::Acc<T>* weight, const NormRow<simd::Acc<T>>& row) {
  using A = simd::Acc<T>;
  const simd::Vec<A> scale = simd::broadcast(row.inv_rms);
  simd::each<A>(row.n, [&](std::int64_t i, auto lanes) {
    simd::store<A>(y + i, simd::load<A>(x + i, lanes) * scale * simd::load<A>(weight + i, lanes), lanes);
  });
}

/// dweight += dy * x * inv_rms
template <class T>
void add_weight_grad(simd::Acc<T>* dweight, const T* dy, const T* x, const NormRow<simd::Acc<T>>& row) {
  using A = simd::Acc<T>;
  const simd::Vec<A> scale = simd::broadcast(row.inv_rms);
  simd::each<A>(row.n, [&](std::int64_t i, auto lanes) {
    const simd::Vec<A> g = simd::load<A>(dy + i, lanes) * simd::load<A>(x + i, lanes) * scale;
    simd::store<A>(dweight + i, simd::load<A>(dweight + i, lanes) + g, lanes);
  });
}

template <class T>
struct RowSink {
  T* data;
  Sink::Mode mode;
};
template <class T>
struct NormInput {
  const T* x;
  const simd::Acc<T>* weight;
  NormRow<simd::Acc<T>> row;
};

/// dx (+)= inv_rms * (dy*weight - x * inv_rms^2 * mean(dy*weight*x)); dx may be dy.
template <class T>
void normalize_grad(const RowSink<T>& dx, const T* dy, const NormInput<T>& in) {
  using A = simd::Acc<T>;
  const std::int64_t n = in.row.n;
  simd::Vec<A> dots{};
  simd::each<A>(n, [&](std::int64_t i, auto lanes) {
    dots += simd::load<A>(dy + i, lanes) * simd::load<A>(in.weight + i, lanes) * simd::load<A>(in.x + i, lanes);
  });
  const A inv = in.row.inv_rms, mean = simd::sum(dots) / static_cast<A>(n);
  const simd::Vec<A> scale = simd::broadcast(inv), pull = simd::broadcast(inv * inv * mean);
  simd::each<A>(n, [&](std::int64_t i, auto lanes) {
    const simd::Vec<A> g = simd::load<A>(dy + i, lanes) * simd::load<A>(in.weight + i, lanes);
    write<A>(dx.data + i, scale * (g - pull * simd::load<A>(in.x + i, lanes)), lanes, dx.mode);
  });
}

}  // namespace qtrain::ops
