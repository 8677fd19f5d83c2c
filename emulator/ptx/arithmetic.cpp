#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <limits>

#include "core/fp8.h"
#include "core/half.h"
#include "emulator/ptx/executions.h"
#include "emulator/ptx/machine.h"

/// Instructions that only use registers. Approximations (ex2.approx and the like) are computed exactly and rounded
/// once.
namespace qtrain::emulation::ptx {
namespace {

using U16 = std::uint16_t;
using U32 = std::uint32_t;
using U64 = std::uint64_t;
using S16 = std::int16_t;
using S32 = std::int32_t;
using S64 = std::int64_t;
using F32 = float;
using F64 = double;

template <class To, class From, auto F>
void unary(Machine& m, const Instruction& i) {
  m.set(i.results[0], static_cast<To>(F(m.operand<From>(i, 0))));
}
template <class To, class From, auto F>
void binary(Machine& m, const Instruction& i) {
  m.set(i.results[0], static_cast<To>(F(m.operand<From>(i, 0), m.operand<From>(i, 1))));
}
/// The first operand is in the high byte. A GPU has one NaN.
template <class F>
U16 fp8_pair(F32 high, F32 low) {
  const auto code = [](F32 x) { return std::isnan(x) ? U16{0x7f} : U16{encode_fp8<F>(x)}; };
  return static_cast<U16>(code(high) << 8 | code(low));
}
template <class T, auto F>
void ternary(Machine& m, const Instruction& i) {
  m.set(i.results[0], static_cast<T>(F(m.operand<T>(i, 0), m.operand<T>(i, 1), m.operand<T>(i, 2))));
}

template <class T>
constexpr Execute kAdd = binary<T, T, [](T a, T b) { return a + b; }>;
template <class T>
constexpr Execute kSub = binary<T, T, [](T a, T b) { return a - b; }>;
template <class T>
constexpr Execute kMul = binary<T, T, [](T a, T b) { return a * b; }>;
template <class T>
constexpr Execute kMulLow = binary<T, T, [](T a, T b) { return static_cast<T>(U64{a} * U64{b}); }>;
template <class Wide, class T>
constexpr Execute kMulWide = binary<Wide, T, [](T a, T b) { return static_cast<Wide>(a) * static_cast<Wide>(b); }>;
template <class Wide, class T>
constexpr Execute kMulHigh =
    binary<T, T, [](T a, T b) { return static_cast<T>(Wide{a} * Wide{b} >> (8 * sizeof(T))); }>;
template <class T>
constexpr Execute kNegate = unary<T, T, [](T a) { return -a; }>;
template <class T>
constexpr Execute kAnd = binary<T, T, [](T a, T b) { return a & b; }>;
template <class T>
constexpr Execute kOr = binary<T, T, [](T a, T b) { return a | b; }>;
template <class T>
constexpr Execute kXor = binary<T, T, [](T a, T b) { return a ^ b; }>;
template <class T>
constexpr Execute kNot = unary<T, T, [](T a) { return ~a; }>;
template <class T>
constexpr Execute kFma = ternary<T, [](T a, T b, T c) { return std::fma(a, b, c); }>;

// Division by zero sets all bits, as on GPUs.
template <class T>
T divided(T a, T b) {
  if (b == 0) return static_cast<T>(~U64{0});
  if constexpr (std::is_signed_v<T>)
    if (b == -1) return static_cast<T>(-static_cast<U64>(a));
  return a / b;
}
template <class T>
T remainder(T a, T b) {
  if (b == 0) return a;
  if constexpr (std::is_signed_v<T>)
    if (b == -1) return 0;
  return a % b;
}
template <class T>
constexpr Execute kDiv = binary<T, T, divided<T>>;
template <class T>
constexpr Execute kRem = binary<T, T, remainder<T>>;
template <class T>
constexpr Execute kDivide = binary<T, T, [](T a, T b) { return a / b; }>;

// If one operand is NaN, the result is the other.
template <class T>
T smaller(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    return std::fmin(a, b);
  else
    return std::min(a, b);
}
template <class T>
T larger(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    return std::fmax(a, b);
  else
    return std::max(a, b);
}
template <class T>
constexpr Execute kMin = binary<T, T, smaller<T>>;
template <class T>
constexpr Execute kMax = binary<T, T, larger<T>>;

// Shifts by the width or more leave 0, or the sign.
template <class T>
void shift_left(Machine& m, const Instruction& i) {
  const auto by = m.operand<U32>(i, 1);
  m.set(i.results[0], by < 8 * sizeof(T) ? static_cast<T>(U64{m.operand<T>(i, 0)} << by) : T{0});
}
template <class T>
void shift_right(Machine& m, const Instruction& i) {
  const U32 by = std::min<U32>(m.operand<U32>(i, 1), 8 * sizeof(T));
  const T a = m.operand<T>(i, 0);
  m.set(i.results[0], by == 8 * sizeof(T) ? static_cast<T>(a < 0 ? -1 : 0) : static_cast<T>(a >> by));
}

enum class Is : std::uint8_t { eq, ne, lt, le, gt, ge, nan };
template <class T>
bool compared(Is is, T a, T b) {
  switch (is) {
    case Is::eq: return a == b;
    case Is::ne: return a < b || a > b;
    case Is::lt: return a < b;
    case Is::le: return a <= b;
    case Is::gt: return a > b;
    case Is::ge: return a >= b;
    case Is::nan: return false;
  }
  return false;
}
template <class T, Is I, bool OrNan = false>
void compare(Machine& m, const Instruction& i) {
  const T a = m.operand<T>(i, 0), b = m.operand<T>(i, 1);
  bool nan = false;
  if constexpr (std::is_floating_point_v<T>) nan = std::isunordered(a, b);
  m.set(i.results[0], nan ? OrNan : compared(I, a, b));
}

template <class T>
void select(Machine& m, const Instruction& i) {
  const Register taken = i.operands[m.operand<bool>(i, 2) ? 0 : 1];
  m.set_has_value(i.results[0], m.has_value(taken) && m.has_value(i.operands[2]));
  m.set(i.results[0], m.get<T>(taken));
}
// Moves between one register and the parts of another, lowest first.
template <class Whole>
void move(Machine& m, const Instruction& i) {
  const std::size_t parts = std::max(i.result_count, i.operand_count), bits = 8 * sizeof(Whole) / parts;
  U64 value = 0;
  for (std::size_t n = 0; n < i.operand_count; ++n) {
    const auto part = m.operand<U64>(i, n);
    value |= (i.operand_count == 1 ? part : part & ((U64{1} << bits) - 1)) << (n * bits);
  }
  for (std::size_t n = 0; n < i.result_count; ++n)
    m.set(i.results[n], i.result_count == 1 ? static_cast<Whole>(value)
                                            : static_cast<Whole>(value >> (n * bits) & ((U64{1} << bits) - 1)));
}

template <class To, class From>
constexpr Execute kConvert = unary<To, From, [](From a) { return static_cast<To>(a); }>;
// Values out of range are clamped; NaN becomes 0.
template <class To, class From>
To truncated(From a) {
  using Limits = std::numeric_limits<To>;
  if (std::isnan(a)) return 0;
  const From whole = std::trunc(a);
  if (whole <= static_cast<From>(Limits::min())) return Limits::min();
  return whole >= static_cast<From>(Limits::max()) ? Limits::max() : static_cast<To>(whole);
}
template <class To, class From>
constexpr Execute kTruncate = unary<To, From, truncated<To, From>>;
template <class Half>
constexpr Execute kToHalf = unary<U16, F32, [](F32 a) { return Half(a).bits; }>;
template <class Half>
F32 widened(U16 bits) {
  Half half;
  half.bits = bits;
  return half;
}
template <class Half>
constexpr Execute kFromHalf = unary<F32, U16, widened<Half>>;
template <class Half>
constexpr Execute kToHalves =
    binary<U32, F32, [](F32 high, F32 low) { return U32{Half(high).bits} << 16 | Half(low).bits; }>;

F32 fma_downward(F32 a, F32 b, F32 c) {
  volatile F32 x = a, y = b, z = c;  // volatile: not computed before the rounding mode is set
  std::fesetround(FE_DOWNWARD);
  volatile F32 sum = std::fma(x, y, z);
  std::fesetround(FE_TONEAREST);
  return sum;
}
F32 saturated(F32 a) {
  return a > 0 ? std::min(a, 1.0f) : 0;
}
U32 reversed(U32 a) {
  U32 b = 0;
  for (int bit = 0; bit < 32; ++bit) b |= (a >> bit & 1) << (31 - bit);
  return b;
}
/// The shift that moves the highest set bit to the top.
U32 shift_amount(U32 a) {
  return a == 0 ? ~0u : static_cast<U32>(std::countl_zero(a));
}
template <class T>
void insert_bits(Machine& m, const Instruction& i) {
  const U32 at = m.operand<U32>(i, 2) & 255, count = m.operand<U32>(i, 3) & 255;
  const T a = m.operand<T>(i, 0), b = m.operand<T>(i, 1);
  if (at >= 8 * sizeof(T) || count == 0) return m.set(i.results[0], b);
  const T mask = static_cast<T>((count >= 8 * sizeof(T) ? ~T{0} : (T{1} << count) - 1) << at);
  m.set(i.results[0], static_cast<T>((b & ~mask) | (a << at & mask)));
}
U32 extracted_bits(U32 a, U32 at, U32 count) {
  at &= 255, count &= 255;
  if (at >= 32) return 0;
  return static_cast<U32>(U64{a} >> at & ((U64{1} << std::min(count, 32u)) - 1));
}
// Selects four of the eight bytes in a and b; if a selector's highest bit is set, the byte's sign is replicated.
U32 permuted(U32 a, U32 b, U32 selectors) {
  const U64 bytes = U64{b} << 32 | a;
  U32 out = 0;
  for (int n = 0; n < 4; ++n) {
    const U32 selector = selectors >> (4 * n) & 15;
    U32 byte = static_cast<U32>(bytes >> (8 * (selector & 7)) & 255);
    if ((selector & 8) != 0) byte = (byte & 128) != 0 ? 255 : 0;
    out |= byte << (8 * n);
  }
  return out;
}

}  // namespace

#define QTRAIN_EACH_INTEGER(name, form)                                                                   \
  {name ".u16", form<U16>}, {name ".s16", form<S16>}, {name ".u32", form<U32>}, {name ".s32", form<S32>}, \
      {name ".u64", form<U64>}, {                                                                         \
    name ".s64", form<S64>                                                                                \
  }
// Signed types use unsigned arithmetic: the same bits, without undefined behavior.
#define QTRAIN_EACH_WRAPPING(name, form)                                                                  \
  {name ".u16", form<U16>}, {name ".s16", form<U16>}, {name ".u32", form<U32>}, {name ".s32", form<U32>}, \
      {name ".u64", form<U64>}, {                                                                         \
    name ".s64", form<U64>                                                                                \
  }
#define QTRAIN_EACH_FLOAT(name, form) \
  {name ".f32", form<F32>}, {         \
    name ".f64", form<F64>            \
  }
#define QTRAIN_EACH_WIDTH(name, form)                   \
  {name ".b16", form<U16>}, {name ".b32", form<U32>}, { \
    name ".b64", form<U64>                              \
  }
#define QTRAIN_COMPARISON(name, is)                                                             \
  {"setp." name ".u16", compare<U16, Is::is>}, {"setp." name ".s16", compare<S16, Is::is>},     \
      {"setp." name ".u32", compare<U32, Is::is>}, {"setp." name ".s32", compare<S32, Is::is>}, \
      {"setp." name ".u64", compare<U64, Is::is>}, {"setp." name ".s64", compare<S64, Is::is>}, \
      {"setp." name ".f32", compare<F32, Is::is>}, {"setp." name ".f64", compare<F64, Is::is>}, \
      {"setp." name "u.f32", compare<F32, Is::is, true>}, {                                     \
    "setp." name "u.f64", compare<F64, Is::is, true>                                            \
  }

const Executions& arithmetic() {
  static const Executions all{
      QTRAIN_EACH_WRAPPING("add", kAdd),
      QTRAIN_EACH_FLOAT("add", kAdd),
      QTRAIN_EACH_WRAPPING("sub", kSub),
      QTRAIN_EACH_FLOAT("sub", kSub),
      QTRAIN_EACH_WRAPPING("mul.lo", kMulLow),
      QTRAIN_EACH_FLOAT("mul", kMul),
      {"mul.rn.f32", kMul<F32>},
      {"mul.wide.u16", kMulWide<U32, U16>},
      {"mul.wide.s16", kMulWide<S32, S16>},
      {"mul.wide.u32", kMulWide<U64, U32>},
      {"mul.wide.s32", kMulWide<S64, S32>},
      {"mul.hi.u32", kMulHigh<U64, U32>},
      {"mul.hi.s32", kMulHigh<S64, S32>},
      {"mul.hi.u64", kMulHigh<unsigned __int128, U64>},
      {"mad.lo.s32", ternary<U32, [](U32 a, U32 b, U32 c) { return a * b + c; }>},
      {"mad.lo.s64", ternary<U64, [](U64 a, U64 b, U64 c) { return a * b + c; }>},
      QTRAIN_EACH_INTEGER("div", kDiv),
      QTRAIN_EACH_INTEGER("rem", kRem),
      QTRAIN_EACH_FLOAT("div.rn", kDivide),
      {"div.approx.f32", kDivide<F32>},
      QTRAIN_EACH_INTEGER("min", kMin),
      QTRAIN_EACH_FLOAT("min", kMin),
      QTRAIN_EACH_INTEGER("max", kMax),
      QTRAIN_EACH_FLOAT("max", kMax),
      {"neg.s16", kNegate<U16>},
      {"neg.s32", kNegate<U32>},
      {"neg.s64", kNegate<U64>},
      QTRAIN_EACH_FLOAT("neg", kNegate),
      {"abs.s32", unary<U32, S32, [](S32 a) { return a < 0 ? -static_cast<U32>(a) : static_cast<U32>(a); }>},
      {"abs.f32", unary<F32, F32, [](F32 a) { return std::abs(a); }>},
      {"abs.f64", unary<F64, F64, [](F64 a) { return std::abs(a); }>},
      {"copysign.f32", binary<F32, F32, [](F32 sign, F32 size) { return std::copysign(size, sign); }>},
      QTRAIN_EACH_FLOAT("fma.rn", kFma),
      {"fma.rm.f32", ternary<F32, fma_downward>},
      {"rcp.rn.f32", unary<F32, F32, [](F32 a) { return 1 / a; }>},
      {"rcp.rn.f64", unary<F64, F64, [](F64 a) { return 1 / a; }>},
      {"rcp.approx.ftz.f32", unary<F32, F32, [](F32 a) { return 1 / a; }>},
      {"sqrt.rn.f32", unary<F32, F32, [](F32 a) { return std::sqrt(a); }>},
      {"sqrt.rn.f64", unary<F64, F64, [](F64 a) { return std::sqrt(a); }>},
      {"rsqrt.approx.f32", unary<F32, F32, [](F32 a) { return static_cast<F32>(1 / std::sqrt(F64{a})); }>},
      {"ex2.approx.f32", unary<F32, F32, [](F32 a) { return std::exp2(a); }>},
      {"ex2.approx.ftz.f32", unary<F32, F32, [](F32 a) { return std::exp2(a); }>},
      {"lg2.approx.f32", unary<F32, F32, [](F32 a) { return std::log2(a); }>},
      QTRAIN_EACH_WIDTH("and", kAnd),
      QTRAIN_EACH_WIDTH("or", kOr),
      QTRAIN_EACH_WIDTH("xor", kXor),
      QTRAIN_EACH_WIDTH("not", kNot),
      {"and.pred", binary<bool, bool, [](bool a, bool b) { return a && b; }>},
      {"or.pred", binary<bool, bool, [](bool a, bool b) { return a || b; }>},
      {"xor.pred", binary<bool, bool, [](bool a, bool b) { return a != b; }>},
      {"not.pred", unary<bool, bool, [](bool a) { return !a; }>},
      QTRAIN_EACH_WIDTH("shl", shift_left),
      QTRAIN_EACH_WIDTH("shr", shift_right),
      QTRAIN_EACH_INTEGER("shr", shift_right),
      {"brev.b32", unary<U32, U32, reversed>},
      {"popc.b32", unary<U32, U32, [](U32 a) { return static_cast<U32>(std::popcount(a)); }>},
      {"bfind.shiftamt.u32", unary<U32, U32, shift_amount>},
      {"bfe.u32", ternary<U32, extracted_bits>},
      {"bfi.b32", insert_bits<U32>},
      {"bfi.b64", insert_bits<U64>},
      {"prmt.b32", ternary<U32, permuted>},
      QTRAIN_COMPARISON("eq", eq),
      QTRAIN_COMPARISON("ne", ne),
      QTRAIN_COMPARISON("lt", lt),
      QTRAIN_COMPARISON("le", le),
      QTRAIN_COMPARISON("gt", gt),
      QTRAIN_COMPARISON("ge", ge),
      {"setp.eq.b16", compare<U16, Is::eq>},
      {"setp.eq.b32", compare<U32, Is::eq>},
      {"setp.eq.b64", compare<U64, Is::eq>},
      {"setp.ne.b16", compare<U16, Is::ne>},
      {"setp.ne.b32", compare<U32, Is::ne>},
      {"setp.ne.b64", compare<U64, Is::ne>},
      {"setp.nan.f32", compare<F32, Is::nan, true>},
      {"setp.nan.f64", compare<F64, Is::nan, true>},
      QTRAIN_EACH_WIDTH("selp", select),
      QTRAIN_EACH_INTEGER("selp", select),
      QTRAIN_EACH_FLOAT("selp", select),
      {"mov.pred", unary<bool, U16, [](U16 a) { return a != 0; }>},
      QTRAIN_EACH_WIDTH("mov", move),
      QTRAIN_EACH_WRAPPING("mov", move),
      {"mov.f32", move<U32>},
      {"mov.f64", move<U64>},
      {"cvta.to.global.u64", move<U64>},
      {"cvt.u16.u32", kConvert<U16, U32>},
      {"cvt.u16.u64", kConvert<U16, U64>},
      {"cvt.u32.u16", kConvert<U32, U16>},
      {"cvt.u32.u64", kConvert<U32, U64>},
      {"cvt.s32.s16", kConvert<S32, S16>},
      {"cvt.s16.s8", kConvert<S16, std::int8_t>},
      {"cvt.s32.s8", kConvert<S32, std::int8_t>},
      {"cvt.u64.u32", kConvert<U64, U32>},
      {"cvt.u64.u16", kConvert<U64, U16>},
      {"cvt.s64.s32", kConvert<S64, S32>},
      {"cvt.s64.s16", kConvert<S64, S16>},
      {"cvt.rn.f32.u16", kConvert<F32, U16>},
      {"cvt.rn.f32.s16", kConvert<F32, S16>},
      {"cvt.rn.f32.u32", kConvert<F32, U32>},
      {"cvt.rn.f32.s32", kConvert<F32, S32>},
      {"cvt.rn.f32.u64", kConvert<F32, U64>},
      {"cvt.rn.f32.s64", kConvert<F32, S64>},
      {"cvt.rn.f64.u32", kConvert<F64, U32>},
      {"cvt.rn.f64.s32", kConvert<F64, S32>},
      {"cvt.rn.f64.u64", kConvert<F64, U64>},
      {"cvt.rn.f64.s64", kConvert<F64, S64>},
      {"cvt.f64.f32", kConvert<F64, F32>},
      {"cvt.rn.f32.f64", kConvert<F32, F64>},
      {"cvt.rzi.s32.f32", kTruncate<S32, F32>},
      {"cvt.rzi.u32.f32", kTruncate<U32, F32>},
      {"cvt.rzi.s64.f32", kTruncate<S64, F32>},
      {"cvt.rzi.s32.f64", kTruncate<S32, F64>},
      {"cvt.rzi.u64.f64", kTruncate<U64, F64>},
      {"cvt.rn.satfinite.e4m3x2.f32", binary<U16, F32, fp8_pair<E4m3>>},
      {"cvt.rn.satfinite.e5m2x2.f32", binary<U16, F32, fp8_pair<E5m2>>},
      {"cvt.rni.f32.f32", unary<F32, F32, [](F32 a) { return std::nearbyint(a); }>},
      {"cvt.rpi.f64.f64", unary<F64, F64, [](F64 a) { return std::ceil(a); }>},
      {"cvt.sat.f32.f32", unary<F32, F32, saturated>},
      {"cvt.rn.f16.f32", kToHalf<F16>},
      {"cvt.rn.bf16.f32", kToHalf<Bf16>},
      {"cvt.f32.f16", kFromHalf<F16>},
      {"cvt.f32.bf16", kFromHalf<Bf16>},
      {"cvt.rn.f16x2.f32", kToHalves<F16>},
      {"cvt.rn.bf16x2.f32", kToHalves<Bf16>},
      {"bra", [](Machine& m, const Instruction& i) { m.jump(i.target); }},
      {"bra.uni", [](Machine& m, const Instruction& i) { m.jump(i.target); }},
      {"ret", [](Machine& m, const Instruction&) { m.jump(~0u); }},
      {"exit", [](Machine& m, const Instruction&) { m.jump(~0u); }},
      {"trap", [](Machine& m, const Instruction& i) { m.fault("runs into a trap", i); }},
  };
  return all;
}

}  // namespace qtrain::emulation::ptx
