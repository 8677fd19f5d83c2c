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

/// The number of operands of wgmma.mma_async besides the accumulators, if rows of A are in registers: four registers, a
/// descriptor, a predicate, two signs, and whether B is transposed.
inline constexpr std::size_t kOperandsOfRows = 9;

}  // namespace qtrain::emulation::ptx
