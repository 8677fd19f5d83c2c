#pragma once
#include <initializer_list>

#include "tests/cuda/schedules.h"
#include "tests/kernels/each_type.h"

namespace qtrain::testing {

inline void in_each_type_on_cuda(CaseOfType act) {
  const OnDevice device;
  Ctx ctx(kCuda, MatmulPrecision::storage, 1);
  for (const DType d : {DType::f32, DType::f16, DType::bf16}) act(ctx, d);
}

}  // namespace qtrain::testing
