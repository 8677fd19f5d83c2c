#pragma once
#include <initializer_list>

#include "tests/kernels/support.h"

namespace qtrain::testing {

/// What an op must do, with elements of one type.
using CaseOfType = void (*)(Ctx& ctx, DType d);

inline void in_each_type(std::initializer_list<DType> types, CaseOfType act) {
  Ctx ctx({}, MatmulPrecision::storage, 3);
  for (const DType d : types) act(ctx, d);
}

}  // namespace qtrain::testing
