#pragma once
#include <cstdint>

namespace qtrain {

/// The factor of the loss that keeps gradients within float16, as torch.amp.GradScaler has it by default: doubled after
/// 2000 steps in a row without overflow, halved after each step with one.
struct LossScale {
  double value = 65536;
  std::int64_t clean_steps = 0;  ///< since it changed

  /// After a step whose gradients were finite, or were not.
  void count(bool finite);
};

}  // namespace qtrain
