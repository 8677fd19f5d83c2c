#pragma once
#include <map>
#include <string>

#include "emulator/ptx/program.h"

namespace qtrain::emulation::ptx {

using Executions = std::map<std::string, Execute, std::less<>>;

/// Implementations by mnemonic: instructions that only use registers, memory accesses, cooperation between threads, and
/// the asynchronous products of warpgroups.
const Executions& arithmetic();
const Executions& memory_access();
const Executions& cooperation();
const Executions& products();

/// The operands of a wgmma.mma_async whose rows of A are in registers, except for the accumulators: four registers, a
/// descriptor, the predicate, two signs, and whether B is transposed.
inline constexpr std::size_t kOperandsOfRows = 9;

}  // namespace qtrain::emulation::ptx
