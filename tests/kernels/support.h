#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/context.h"

namespace qtrain::testing {

/// The device that all arrays are on from now on.
inline Device& array_device() {
  static Device device;
  return device;
}

/// A tensor with values that the host can access. On a CUDA device, values are transferred on demand: an op gets the
/// latest values that the host set, and the host sees what ops have written.
class Array {
 public:
  Array() = default;
  Array(DType dtype, Shape shape)
      : bytes_(static_cast<std::size_t>(shape.numel()) * size_of(dtype)), dtype_(dtype), shape_(shape) {}
  Array(const Array& other)
      : bytes_(other.bytes()), written_(other.written_), dtype_(other.dtype_), shape_(other.shape_) {}
  Array& operator=(const Array& other) { return *this = Array(other); }
  Array(Array&&) = default;
  Array& operator=(Array&&) = default;

  Tensor tensor() {
    if (array_device().kind == DeviceKind::cpu) return {bytes_.data(), dtype_, shape_, {}};
    if (!device_) device_ = std::make_unique<DeviceMemory>(array_device(), bytes_.size());
    if (!on_device_ && written_) {
      Stream stream(array_device());
      stream.copy(device_->data(), bytes_.data(), bytes_.size());
      stream.synchronize();
    }
    on_device_ = true;
    return {device_->data(), dtype_, shape_, array_device()};
  }
  operator Tensor() { return tensor(); }       // NOLINT: implicit, as op arguments
  operator ConstTensor() { return tensor(); }  // NOLINT
  std::int64_t size() const { return shape_.numel(); }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  const std::vector<std::byte>& bytes() const {
    fetch();
    return bytes_;
  }

  double get(std::int64_t i) const {
    double v = 0;
    dispatch_any([&]<class T>() { v = static_cast<double>(host<T>()[i]); });
    return v;
  }
  void set(std::int64_t i, double v) {
    if (dtype_ == DType::f64) {
      host<double>()[i] = v;
      return;
    }
    dispatch_any([&]<class T>() { host<T>()[i] = static_cast<T>(static_cast<float>(v)); });
  }
  std::vector<double> values() const {
    std::vector<double> v(static_cast<std::size_t>(size()));
    dispatch_any([&]<class T>() {
      const T* p = host<T>();
      for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<double>(p[i]);
    });
    return v;
  }
  Array as(DType dtype) const {
    Array other(dtype, shape_);
    for (std::int64_t i = 0; i < size(); ++i) other.set(i, get(i));
    return other;
  }
  /// Writable values of any type.
  template <class T>
  T* host() const {
    fetch();
    written_ = true;
    return reinterpret_cast<T*>(bytes_.data());
  }

 private:
  template <class F>
  void dispatch_any(const F& f) const {
    if (dtype_ == DType::f16) return f.template operator()<F16>();
    dispatch_float(dtype_, f);
  }
  void fetch() const {
    if (!on_device_) return;
    on_device_ = false;
    written_ = true;
    synchronize(array_device());
    Stream stream(array_device());
    stream.copy(bytes_.data(), device_->data(), bytes_.size());
    stream.synchronize();
  }

  mutable std::vector<std::byte> bytes_;
  std::unique_ptr<DeviceMemory> device_;
  mutable bool on_device_ = false;  ///< the device has the newest values
  mutable bool written_ = false;    ///< there are values
  DType dtype_ = DType::f32;
  Shape shape_;
};

/// Standard normal values that every dtype holds exactly (rounded to bf16), so that dtypes compute on equal inputs.
Array random(DType dtype, Shape shape, std::uint64_t seed);

/// Values with all digits of their type and of different magnitudes, so that sums in another order have different bits.
Array irregular(DType dtype, Shape shape, std::uint64_t seed);

inline Array integers(const std::vector<std::int32_t>& values) {
  Array a(DType::i32, {static_cast<std::int64_t>(values.size())});
  std::copy(values.begin(), values.end(), a.host<std::int32_t>());
  return a;
}

inline Array scalars(const std::vector<double>& values) {
  Array a(DType::f64, {static_cast<std::int64_t>(values.size())});
  std::copy(values.begin(), values.end(), a.host<double>());
  return a;
}

}  // namespace qtrain::testing
