#pragma once
#include <map>
#include <string>

#include "emulator/ptx/program.h"

namespace qtrain::emulation::ptx {

using Executions = std::map<std::string, Execute, std::less<>>;

/// By mnemonic: what computes with registers alone, what moves between registers and memory, and what threads do
/// together.
const Executions& arithmetic();
const Executions& memory_access();
const Executions& cooperation();

}  // namespace qtrain::emulation::ptx
