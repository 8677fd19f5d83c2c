#pragma once
#include <bit>
#include <cstring>

#include "emulator/block.h"
#include "emulator/ptx/program.h"
#include "emulator/ptx/trace.h"

namespace qtrain::emulation::ptx {

/// A launch of a function, with its parameters in the declared layout.
struct Call {
  const Function* function;
  std::vector<std::byte> parameters;
  LaunchTrace* trace = nullptr;  ///< set while the launch is counted
};

/// Executes a function for one thread.
class Machine {
 public:
  Machine(Fiber& fiber, const Call& call);

  void run();

  template <class T>
  T get(Register r) const {
    T value;
    std::memcpy(&value, &values_[r], sizeof value);
    return value;
  }
  template <class T>
  void set(Register r, T value) {
    values_[r] = 0;
    std::memcpy(&values_[r], &value, sizeof value);
  }
  bool has_value(Register r) const { return (written_[r] & kValue) != 0; }
  void set_has_value(Register r, bool has) {
    written_[r] = static_cast<std::uint8_t>((written_[r] & ~kValue) | (has ? kValue : 0));
  }
  /// The state of a register, as bits. `kInFlight`: a product of wgmma uses it until a wait; `kTouched`: another
  /// instruction has used it since the last wgmma.fence (only for registers of products).
  static constexpr std::uint8_t kValue = 1, kInFlight = 2, kTouched = 4;
  std::uint8_t& state(Register r) const { return written_[r]; }
  const Function& function() const { return *call_.function; }
  AsyncRegisters cells(const Register* registers) const { return {.base = values_, .cells = registers}; }
  /// The value of the instruction's n-th operand.
  template <class T>
  T operand(const Instruction& i, std::size_t n) const {
    return get<T>(i.operands[n]);
  }

  void jump(std::uint32_t target) { next_ = target; }
  std::byte* shared(std::uint32_t address) const { return fiber_.block->shared() + address; }
  /// Pointers into local memory and the parameters; faults if the bytes are out of range.
  std::byte* local(std::uint64_t at, std::size_t bytes, const Instruction& i) const;
  std::byte* parameter(std::uint64_t at, std::size_t bytes, const Instruction& i) const;
  /// A tensor map among the parameters, from its generic address.
  const std::byte* tensor_map(std::uint64_t address, const Instruction& i) const;
  Fiber& fiber() const { return fiber_; }
  [[noreturn]] void fault(const std::string& what, const Instruction& i) const {
    fiber_.block->fault(fiber_, what, i.place);
  }

 private:
  void run_traced();
  /// Whether the instruction runs for this thread.
  bool passes_guard(const Instruction& i) const {
    if (!i.guarded) return true;
    if (!written_[i.guard]) fault_at_guard(i);
    return get<bool>(i.guard) != i.unless;
  }
  [[noreturn]] void fault_at_guard(const Instruction& i) const;
  LaneAccess access_of(const Instruction& i) const;
  void require_within(std::size_t size, std::uint64_t at, std::size_t bytes, const Instruction& i) const;
  void require_values(const Instruction& i);
  void require_values_beside_products(const Instruction& i);

  Fiber& fiber_;
  const Call& call_;
  std::uint64_t* values_;
  std::uint8_t* written_;
  std::size_t next_ = 0;
};

}  // namespace qtrain::emulation::ptx
