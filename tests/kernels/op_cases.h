#pragma once
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/kernels/support.h"

namespace qtrain::testing {

/// The type that an input is stored in when the op runs in a dtype.
enum class Storage : std::uint8_t {
  same,        ///< the dtype
  arithmetic,  ///< f64 with f64, else f32 (norm weights, tables)
};

struct Input {
  std::string name;
  Shape shape;
  Storage storage = Storage::same;
};

using Arrays = std::vector<Array>;

/// The distribution of inputs: values that every dtype holds, or values whose sums have different bits in every other
/// order.
enum class Digits : std::uint8_t { of_bf16, of_dtype };

/// An op with its gradient as one row of the test table. The first output is the one that is differentiated.
struct OpCase {
  std::string name;
  std::vector<Input> inputs;
  /// Runs the op in `dtype` on inputs stored accordingly.
  std::function<Arrays(Ctx&, DType, Arrays&)> forward;
  /// The first output by its formula, in f64.
  std::function<std::vector<double>(const Arrays&)> formula;
  /// Stores or adds the gradients of the inputs in `gradients`, according to the mode of each sink.
  struct Backward {
    Arrays &inputs, &outputs;
    Array& dy;
    std::vector<Sink>& gradients;
  };
  std::function<void(Ctx&, DType, const Backward&)> backward;
  bool equal_dy = false;  ///< the gradient has one factor for all rows (cross-entropy)
  Digits digits = Digits::of_bf16;
};
inline OpCase with_all_digits(OpCase op) {
  op.digits = Digits::of_dtype;
  return op;
}

inline void PrintTo(const OpCase* op, std::ostream* out) {
  *out << op->name;
}

inline DType arithmetic_of(DType d) {
  return d == DType::f64 ? DType::f64 : DType::f32;
}

/// "_5x7", the suffix of a case name.
std::string shape_name(const Shape& s);

/// Cases of norms, rotary embeddings and DoRA magnitudes.
std::vector<OpCase> norm_cases();

struct AttentionSizes {
  std::string name;
  std::vector<std::int32_t> cu;
  std::int64_t Hq, Hkv, D, window = 0;
  double softcap = 0;
  bool sinks = false;
  std::int64_t memory = 0;  ///< query heads for whose sums of dq there is memory

  std::int64_t T() const { return cu.back(); }
  double scale() const { return 1 / std::sqrt(static_cast<double>(D)); }
  std::int64_t memory_elements() const;  ///< in f32, at least 1
};
OpCase attention_case(const AttentionSizes& n);
std::vector<OpCase> attention_cases();
/// Cases of projections and gates that are stored in one tensor.
std::vector<OpCase> with_packed_cases(std::vector<OpCase> cases);
/// Cases of the ops of mixtures of experts.
std::vector<OpCase> with_expert_cases(std::vector<OpCase> cases);

/// Every op that has a gradient, with regular and irregular shapes. Created only once: every test of them runs in its
/// own process, which registers all tests first.
std::vector<const OpCase*> op_cases();

}  // namespace qtrain::testing
