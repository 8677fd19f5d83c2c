#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/error.h"
#include "core/half.h"

namespace qtrain {

enum class DType : std::uint8_t { f64, f32, f16, bf16, i64, i32, i16, i8, u8, boolean, f8_e4m3, f8_e5m2 };

constexpr std::size_t size_of(DType d) {
  switch (d) {
    case DType::f64:
    case DType::i64: return 8;
    case DType::f32:
    case DType::i32: return 4;
    case DType::f16:
    case DType::bf16:
    case DType::i16: return 2;
    default: return 1;
  }
}

constexpr bool is_float(DType d) {
  return d == DType::f64 || d == DType::f32 || d == DType::f16 || d == DType::bf16;
}

constexpr bool is_fp8(DType d) {
  return d == DType::f8_e4m3 || d == DType::f8_e5m2;
}

/// "float32", "bfloat16", ...: as in a Hugging Face config.json.
std::string_view name_of(DType d);
/// Inverse of name_of, which also accepts "fp32", "bf16", "torch.bfloat16", ...; a usage error for anything else.
DType dtype_named(std::string_view name);

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<F16> {
  static constexpr DType value = DType::f16;
};
template <>
struct DTypeOf<Bf16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<std::int8_t> {
  static constexpr DType value = DType::i8;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::u8;
};
template <class T>
inline constexpr DType dtype_of = DTypeOf<std::remove_const_t<T>>::value;

enum class DeviceKind : std::uint8_t { cpu, cuda };
struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
};

/// Up to four extents, outermost first. `shape[-1]` is the innermost.
struct Shape {
  std::array<std::int64_t, 4> dims{1, 1, 1, 1};
  int rank = 0;

  Shape() = default;
  template <std::integral... I>
  Shape(I... extents) : dims{static_cast<std::int64_t>(extents)...}, rank(sizeof...(I)) {}  // NOLINT: implicit

  std::int64_t operator[](int i) const { return dims[static_cast<std::size_t>(i < 0 ? rank + i : i)]; }
  std::int64_t numel() const {
    std::int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= (*this)[i];
    return n;
  }
  /// Number of innermost rows: numel / shape[-1].
  std::int64_t rows() const {
    std::int64_t n = 1;
    for (int i = 0; i + 1 < rank; ++i) n *= (*this)[i];
    return n;
  }
  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.rank != b.rank) return false;
    for (int i = 0; i < a.rank; ++i)
      if (a[i] != b[i]) return false;
    return true;
  }
};
/// "[2, 3]"
std::string to_string(const Shape& s);

/// A contiguous, row-major view; it never owns memory. Tensor converts to ConstTensor as span<T> to span<const T>.
template <class Byte>
struct View {
  Byte* data = nullptr;
  DType dtype = DType::f32;
  Shape shape;
  Device device;

  operator View<const Byte>() const { return {data, dtype, shape, device}; }  // NOLINT: as span
  explicit operator bool() const { return data != nullptr; }

  std::int64_t numel() const { return shape.numel(); }
  std::size_t bytes() const { return static_cast<std::size_t>(numel()) * size_of(dtype); }

  /// Typed pointer to the first element; an internal error if the dtype differs or there is no storage.
  template <class T>
  auto* as() const {
    check(data != nullptr || numel() == 0, "tensor has no storage");
    check(dtype_of<T> == dtype, "tensor has a different dtype");
    using Elem = std::conditional_t<std::is_const_v<Byte>, const T, T>;
    return reinterpret_cast<Elem*>(data);
  }
  template <class T>
  auto span() const {
    auto* p = as<T>();
    return std::span<std::remove_pointer_t<decltype(p)>>(p, static_cast<std::size_t>(numel()));
  }
  /// The same memory with another shape of the same numel.
  View reshaped(Shape s) const {
    check(s.numel() == numel(), "reshaped: the number of elements differs");
    return {data, dtype, s, device};
  }
  /// Rows [begin, begin + count) of the outermost dimension.
  View slice(std::int64_t begin, std::int64_t count) const {
    check(shape.rank > 0 && begin >= 0 && count >= 0 && begin + count <= shape[0], "slice out of range");
    View v = *this;
    v.shape.dims[0] = count;
    const std::int64_t row = shape[0] == 0 ? 0 : numel() / shape[0];
    if (data) v.data = data + static_cast<std::size_t>(begin * row) * size_of(dtype);
    return v;
  }
};
using Tensor = View<std::byte>;
using ConstTensor = View<const std::byte>;

/// Whether `t` and `next` are contiguous: `next` begins where `t` ends, in the same type.
inline bool are_contiguous(const ConstTensor& t, const ConstTensor& next) {
  return t.data && t.data + t.bytes() == next.data && t.dtype == next.dtype;
}
/// The same memory in as few flat views as possible: contiguous tensors are joined.
template <class Byte>
std::vector<View<Byte>> joined(const std::vector<View<Byte>>& tensors) {
  std::vector<View<Byte>> runs;
  for (const View<Byte>& t : tensors)
    if (!runs.empty() && are_contiguous(runs.back(), t))
      runs.back().shape = {runs.back().numel() + t.numel()};
    else
      runs.push_back(t.reshaped({t.numel()}));
  return runs;
}

/// A view of host memory held by a container.
template <class T>
auto view_of(std::span<T> values, Shape shape) {
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  check(shape.numel() == static_cast<std::int64_t>(values.size()), "view_of: shape and size differ");
  return View<Byte>{reinterpret_cast<Byte*>(values.data()), dtype_of<T>, shape, {}};
}

/// A destination that shows at the call whether it is overwritten, added to, or discarded (for a frozen weight).
struct Sink {
  enum class Mode : std::uint8_t { store, accumulate, discard };
  Tensor t;
  Mode mode = Mode::discard;

  bool wanted() const { return mode != Mode::discard; }
  bool adds() const { return mode == Mode::accumulate; }
};
inline Sink store(Tensor t) {
  return {t, Sink::Mode::store};
}
inline Sink accumulate(Tensor t) {
  return {t, Sink::Mode::accumulate};
}
inline Sink discard() {
  return {};
}

/// Calls `f.operator()<T>()` with T the C++ type of a floating dtype that kernels compute on (f64, f32, bf16).
template <class F>
decltype(auto) dispatch_float(DType d, F&& f) {
  switch (d) {
    case DType::f64: return f.template operator()<double>();
    case DType::f32: return f.template operator()<float>();
    case DType::bf16: return f.template operator()<Bf16>();
    default: fail(ErrorKind::internal, {.cause = "expected f64, f32 or bf16, got " + std::string(name_of(d))});
  }
}

}  // namespace qtrain
