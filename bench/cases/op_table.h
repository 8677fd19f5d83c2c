#pragma once
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "core/context.h"

/// Ops by name, with their arguments in a fixed order: the one table behind the cases of `qtrain bench` and the C
/// functions of bench/ops_library.h.
namespace qtrain::bench {

/// A tensor that an op gets; one without data is left out.
struct Argument {
  Tensor tensor;
  bool adds = false;  ///< a destination that is added to
};

/// Tensors and numbers in the order of the op's row in op_table.cpp.
struct OpCall {
  std::string_view op;
  std::span<const Argument> tensors;
  std::span<const double> numbers = {};
};
/// A usage error where there is no such op, an internal one where arguments are missing.
void call_op(Ctx& ctx, const OpCall& call);

}  // namespace qtrain::bench
