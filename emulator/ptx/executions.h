#pragma once
#include <map>
#include <string>

#include "emulator/ptx/program.h"

namespace qtrain::emulation::ptx {

using Executions = std::map<std::string, Execute, std::less<>>;

/// Implementations by mnemonic: instructions that only use registers, memory accesses, and cooperation between threads.
const Executions& arithmetic();
const Executions& memory_access();
const Executions& cooperation();

}  // namespace qtrain::emulation::ptx
