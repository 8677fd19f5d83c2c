#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "emulator/ptx/kinds.h"
#include "emulator/thread.h"

/// Kernels as compiled by nvcc: the parsed and decoded PTX of one source file. Based on "Parallel Thread Execution
/// ISA", version 9.0; instructions that no kernel here needs are rejected by name.
namespace qtrain::emulation::ptx {

class Machine;
struct Instruction;
using Execute = void (*)(Machine& machine, const Instruction& instruction);
/// Index of a register in its function; immediate values and special registers have one too.
using Register = std::uint32_t;

struct Instruction {
  static constexpr std::size_t kMaxResults = 4, kMaxOperands = 10;

  Execute execute = nullptr;
  std::array<Register, kMaxResults> results{};
  std::array<Register, kMaxOperands> operands{};
  std::uint8_t result_count = 0, operand_count = 0;
  bool strict = false;   ///< all operands must have values; otherwise an undefined operand makes the result undefined
  bool guarded = false;  ///< runs only if `guard` differs from `unless`
  bool unless = false;
  Register guard = 0;
  std::int64_t offset = 0;   ///< of an address, or into the parameters
  std::uint32_t target = 0;  ///< of a branch
  std::uint32_t list = 0;    ///< for wgmma: the number of its accumulators among the function's lists, from 1
  Traits traits{};
  Place place;  ///< line in the kernel's source
};

struct Parameter {
  std::size_t offset, bytes;
};
enum class Special : std::uint8_t {
  thread_x,
  thread_y,
  thread_z,
  threads_x,
  threads_y,
  threads_z,
  block_x,
  block_y,
  block_z,
  blocks_x,
  blocks_y,
  blocks_z,
  lane
};

struct Function {
  std::string name;  ///< mangled
  std::vector<Parameter> parameters;
  std::size_t parameter_bytes = 0, local_bytes = 0;
  int thread_registers = 0;            ///< as many as the launch bounds allow; 0 without bounds
  std::vector<std::string> registers;  ///< register names
  std::vector<std::pair<Register, std::uint64_t>> constants;
  std::vector<std::pair<Register, Special>> specials;
  std::deque<std::vector<Register>> lists;  ///< accumulators of products, each list once
  std::vector<std::uint8_t> in_products;    ///< per register: whether wgmma uses it as an accumulator or a row of A
  std::vector<Instruction> code;
};

struct Program {
  std::deque<std::string> files;  ///< file names that places point to
  std::map<std::string, Function> functions;
};

/// Throws an Error that names the line of `name` that cannot be parsed.
Program parse(std::string_view text, const std::string& name);

}  // namespace qtrain::emulation::ptx
