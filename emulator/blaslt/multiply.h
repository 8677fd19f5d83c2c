#pragma once
#include "emulator/blaslt/problem.h"
#include "emulator/device.h"

namespace qtrain::stand_in {

/// The operands of a call.
struct Operands {
  const void *a, *b, *c;
  void* d;
  float alpha, beta;
};

/// Computes a problem by the formula in the documentation, in f64.
void multiply(const Problem& problem, const Operands& operands);
/// The memory that `multiply` reads and writes.
std::vector<emulation::Touch> touches_of(const Problem& problem, const Operands& operands);

}  // namespace qtrain::stand_in
