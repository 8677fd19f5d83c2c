#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bench/cases/op_table.h"

/// What is measured: single ops in the shapes of a training step, and the preparation of data. `qtrain bench` times
/// these cases, bench/main.cpp runs one of them under a profiler, bench/peers/gemm_onednn.cpp holds their GEMMs
/// against another library.
namespace qtrain::bench {

/// Values of an operand. `places` are 0, 1, 2, ...; `ids` are below the operand's `limit`.
enum class Contents : std::uint8_t { random, positive, places, ids, given };

/// A tensor of a case. Every round of the measurement uses another copy of it.
struct Operand {
  Shape shape;
  DType dtype;
  Contents contents = Contents::random;
  std::int64_t limit = 0;
  std::vector<double> values = {};  ///< with Contents::given
  bool adds = false;                ///< a destination that is added to
};
inline Operand f32(const Shape& shape, Contents contents = Contents::random) {
  return {shape, DType::f32, contents};
}
inline Operand added_to(Operand o) {
  o.adds = true;
  return o;
}

/// One run of a case; a case of the host's own work has no operands.
using Run = std::function<void(Ctx&, std::span<const Argument>)>;

struct Case {
  std::string name;  ///< "swiglu/8192x3072"
  std::vector<Operand> operands;
  std::function<Run()> prepare;  ///< makes what the runs need: a file, a tokenizer; it is not measured
  double bytes = 0;  ///< that must be moved, each input read once and each output written once; 0: bound by arithmetic
  double flops = 0;
  double text_bytes = 0;  ///< of the text that a run reads
};

/// What an op of op_table.cpp does with the operands and these numbers.
std::function<Run()> op(std::string name, std::vector<double> numbers = {});

/// A decoder's dimensions.
struct Model {
  std::string name;
  std::int64_t width, hidden, heads, groups, head, vocabulary;
};

struct Sizes {
  DType dtype;  ///< of activations and weights
  std::int64_t tokens, copied, gemm, vocabulary_rows, parameters;
  std::vector<Model> models;
  std::vector<std::int64_t> lengths;       ///< of attention's documents
  std::vector<std::int64_t> decoded = {};  ///< rows of a GEMM in generation
  std::int64_t text_rows = 0;              ///< of the data cases; 0: none
};
/// What a step has on that device.
Sizes sizes_for(Device device);
/// Tiny ones with which every case runs in no time.
Sizes small_sizes(Device device);
/// Of the processor, for counting instructions: milliseconds each.
Sizes counted_sizes();

/// The limits that all others are held against: a copy within the device's memory, and a large square GEMM.
Case copy_case(const Sizes& sizes);
Case gemm_case(const Sizes& sizes);

/// Updates of parameters.
void add_optimizers(std::vector<Case>& cases, const Sizes& sizes);

/// A 4-bit matrix of that shape: to 16 or 32 bits, from them, and multiplied with a few rows.
void add_quantized(std::vector<Case>& cases, const Sizes& sizes, const Shape& shape);

/// Reading rows, tokenizing and packing, on one thread of the host.
void add_data(std::vector<Case>& cases, const Sizes& sizes);

/// All but the limits, in the order of the report.
std::vector<Case> all_cases(const Sizes& sizes);

}  // namespace qtrain::bench
