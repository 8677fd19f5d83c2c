#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "core/context.h"
#include "core/rng.h"

namespace qtrain::testing {

/// Host memory of a tensor; values come from a seeded generator.
class Array {
 public:
  Array() = default;
  Array(DType dtype, Shape shape)
      : bytes_(static_cast<std::size_t>(shape.numel()) * size_of(dtype)), dtype_(dtype), shape_(shape) {}

  Tensor tensor() { return {bytes_.data(), dtype_, shape_, {}}; }
  operator Tensor() { return tensor(); }       // NOLINT: implicit, as op arguments
  operator ConstTensor() { return tensor(); }  // NOLINT
  std::int64_t size() const { return shape_.numel(); }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  const std::vector<std::byte>& bytes() const { return bytes_; }

  double get(std::int64_t i) const {
    double v = 0;
    auto* self = const_cast<Array*>(this);
    if (dtype_ == DType::f16) return static_cast<float>(self->tensor().as<F16>()[i]);
    dispatch_float(dtype_, [&]<class T>() { v = static_cast<double>(self->tensor().as<T>()[i]); });
    return v;
  }
  void set(std::int64_t i, double v) {
    if (dtype_ == DType::f16) {
      tensor().as<F16>()[i] = static_cast<float>(v);
      return;
    }
    dispatch_float(dtype_, [&]<class T>() { tensor().as<T>()[i] = static_cast<T>(static_cast<float>(v)); });
    if (dtype_ == DType::f64) tensor().as<double>()[i] = v;
  }
  std::vector<double> values() const {
    std::vector<double> v(static_cast<std::size_t>(size()));
    if (dtype_ == DType::f16) {
      for (std::int64_t i = 0; i < size(); ++i) v[static_cast<std::size_t>(i)] = get(i);
      return v;
    }
    dispatch_float(dtype_, [&]<class T>() {
      const T* p = const_cast<Array*>(this)->tensor().as<T>();
      for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<double>(p[i]);
    });
    return v;
  }
  Array as(DType dtype) const {
    Array other(dtype, shape_);
    for (std::int64_t i = 0; i < size(); ++i) other.set(i, get(i));
    return other;
  }

 private:
  std::vector<std::byte> bytes_;
  DType dtype_ = DType::f32;
  Shape shape_;
};

/// Standard normal values that every dtype holds exactly (rounded to bf16), so that dtypes compute on equal inputs.
inline Array random(DType dtype, Shape shape, std::uint64_t seed) {
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  Array a(dtype, shape);
  for (std::int64_t i = 0; i < a.size(); i += 4) {
    const auto words = philox(seed, 0x7e57, static_cast<std::uint64_t>(i));
    for (std::int64_t j = 0; j < 4 && i + j < a.size(); ++j)
      a.set(i + j, static_cast<float>(
                       Bf16(static_cast<float>(normal_pair(words[at(j & 2)], words[at((j & 2) + 1)])[at(j & 1)]))));
  }
  return a;
}

inline Array integers(const std::vector<std::int32_t>& values) {
  Array a(DType::i32, {static_cast<std::int64_t>(values.size())});
  std::copy(values.begin(), values.end(), a.tensor().as<std::int32_t>());
  return a;
}

inline Array scalars(const std::vector<double>& values) {
  Array a(DType::f64, {static_cast<std::int64_t>(values.size())});
  std::copy(values.begin(), values.end(), a.tensor().as<double>());
  return a;
}

}  // namespace qtrain::testing
