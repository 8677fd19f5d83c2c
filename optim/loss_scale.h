#pragma once
#include <cstdint>

namespace qtrain {

/// Loss scale that keeps gradients within float16, with the defaults of torch.amp.GradScaler: doubled after 2000
/// consecutive steps without overflow, halved after each step with overflow.
struct LossScale {
  double value = 65536;
  std::int64_t clean_steps = 0;  ///< since the last change

  /// Call it after each step; `finite`: all gradients were finite.
  void count(bool finite);
};

}  // namespace qtrain
