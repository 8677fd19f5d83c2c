#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bench/cases/op_table.h"

/// The benchmark cases: single ops in the shapes of a training step, and data preparation. `qtrain bench` times these
/// cases, bench/main.cpp runs one of them under a profiler, and bench/peers/gemm_onednn.cpp compares their GEMMs with
/// another library.
namespace qtrain::bench {

/// How an operand is filled. `places`: 0, 1, 2, ...; `ids`: random integers below the operand's `limit`.
enum class Contents : std::uint8_t { random, positive, places, ids, given };

/// A tensor of a case. Each round of a measurement uses a different copy of it.
struct Operand {
  Shape shape;
  DType dtype;
  Contents contents = Contents::random;
  std::int64_t limit = 0;
  std::vector<double> values = {};  ///< with Contents::given
  bool adds = false;                ///< a destination that is accumulated into
};
inline Operand f32(const Shape& shape, Contents contents = Contents::random) {
  return {shape, DType::f32, contents};
}
inline Operand added_to(Operand o) {
  o.adds = true;
  return o;
}

/// One run of a case; a case that only runs on the host has no operands.
using Run = std::function<void(Ctx&, std::span<const Argument>)>;

struct Case {
  std::string name;  ///< "swiglu/8192x3072"
  std::vector<Operand> operands;
  std::function<Run()> prepare;  ///< creates what the runs need (a file, a tokenizer); not measured
  double bytes = 0;  ///< minimum memory traffic: each input read once, each output written once; 0: compute-bound
  double flops = 0;
  double text_bytes = 0;  ///< bytes of text that a run reads
};

/// Runs an op of op_table.cpp with the operands and these numbers.
std::function<Run()> op(std::string name, std::vector<double> numbers = {});

/// Dimensions of a decoder.
struct Model {
  std::string name;
  std::int64_t width, hidden, heads, groups, head, vocabulary;
};

struct Sizes {
  DType dtype;  ///< dtype of activations and weights
  std::int64_t tokens, copied, gemm, vocabulary_rows, parameters;
  std::vector<Model> models;
  std::vector<std::int64_t> lengths;       ///< lengths of attention's documents
  std::vector<std::int64_t> decoded = {};  ///< rows of a GEMM during decoding
  std::int64_t text_rows = 0;              ///< rows of the data cases; 0: none
};
/// The sizes of a typical training step on the device.
Sizes sizes_for(Device device);
/// Tiny sizes, with which every case takes almost no time.
Sizes small_sizes(Device device);
/// CPU sizes for counting instructions: milliseconds per case.
Sizes counted_sizes();

/// The limits that other cases are compared with: a copy within device memory, and a large square GEMM.
Case copy_case(const Sizes& sizes);
Case gemm_case(const Sizes& sizes);

/// Optimizer updates.
void add_optimizers(std::vector<Case>& cases, const Sizes& sizes);

/// For a 4-bit matrix of this shape: quantization, dequantization, and multiplication by a few rows.
void add_quantized(std::vector<Case>& cases, const Sizes& sizes, const Shape& shape);

/// Reading rows, tokenizing and packing, on one thread of the host.
void add_data(std::vector<Case>& cases, const Sizes& sizes);

/// All cases except the limits, in the order of the report.
std::vector<Case> all_cases(const Sizes& sizes);

}  // namespace qtrain::bench
