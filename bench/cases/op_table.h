#pragma once
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "core/context.h"

/// Ops by name, with their arguments in a fixed order: the table behind both the cases of `qtrain bench` and the C
/// functions of bench/ops_library.h.
namespace qtrain::bench {

/// A tensor argument; one without data is omitted.
struct Argument {
  Tensor tensor;
  bool adds = false;  ///< a destination that is accumulated into
};

/// Tensors and numbers in the order of the op's row in op_table.cpp.
struct OpCall {
  std::string_view op;
  std::span<const Argument> tensors;
  std::span<const double> numbers = {};
};
/// Throws a usage error for an unknown op, and an internal error for missing arguments.
void call_op(Ctx& ctx, const OpCall& call);

}  // namespace qtrain::bench
