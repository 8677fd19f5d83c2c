#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/context.h"

/// What `qtrain bench` measures: single ops in the shapes of a training step.
namespace qtrain::bench {

/// Values of an operand. `places` are 0, 1, 2, ...; `ids` are below the operand's `limit`.
enum class Contents : std::uint8_t { random, positive, places, ids, given };

/// A tensor of a case. Every round of the measurement uses another copy of it.
struct Operand {
  Shape shape;
  DType dtype;
  Contents contents = Contents::random;
  std::int64_t limit = 0;
  std::vector<double> values = {};  ///< with Contents::given, for u8, i32 and f64
};
inline Operand f32(const Shape& shape, Contents contents = Contents::random) {
  return {shape, DType::f32, contents};
}

struct Case {
  std::string name;  ///< "swiglu/8192x3072"
  std::vector<Operand> operands;
  std::function<void(Ctx&, std::span<const Tensor>)> run;
  double bytes = 0;  ///< that must be moved, each input read once and each output written once; 0: bound by products
  double flops = 0;
};

/// The sizes for a device: what a step has there, or tiny ones with which every case runs in no time.
struct Sizes {
  DType dtype;  ///< of activations and weights
  std::int64_t tokens, copied, product, vocabulary_rows, parameters;
  int divisor = 1;  ///< of the model's dimensions
  std::vector<std::int64_t> lengths;
};
Sizes sizes_for(Device device);
Sizes small_sizes(Device device);

/// The limits that all others are held against: a copy within the device's memory, and a large square product.
Case copy_case(const Sizes& sizes);
Case product_case(const Sizes& sizes);

/// Updates of parameters.
void add_optimizers(std::vector<Case>& cases, const Sizes& sizes);

/// A 4-bit matrix of that shape: to 16 or 32 bits, from them, and multiplied with a few rows.
void add_quantized(std::vector<Case>& cases, const Sizes& sizes, const Shape& shape);

/// All others, in the order of the report.
std::vector<Case> op_cases(const Sizes& sizes);

}  // namespace qtrain::bench
