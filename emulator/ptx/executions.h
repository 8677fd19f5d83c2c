#pragma once
#include <map>
#include <string>

#include "emulator/ptx/program.h"
#include "emulator/tensor_map.h"

namespace qtrain::emulation::ptx {

using Executions = std::map<std::string, Execute, std::less<>>;

/// Implementations by mnemonic: instructions that only use registers, memory accesses, cooperation between threads, and
/// the asynchronous products of warpgroups, and barriers in shared memory with what belongs to them.
const Executions& arithmetic();
const Executions& memory_access();
const Executions& cooperation();
const Executions& products();
const Executions& mbarriers();

/// What a cp.async.bulk.tensor copies.
BoxCopy box_of(const Machine& m, const Instruction& i);

/// The number of operands of wgmma.mma_async besides the accumulators, if rows of A are in registers: four registers, a
/// descriptor, a predicate, two signs, and whether B is transposed.
inline constexpr std::size_t kOperandsOfRows = 9;

}  // namespace qtrain::emulation::ptx
