#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "core/context.h"
#include "dist/collective.h"
#include "model/transformer.h"

namespace qtrain {

/// Summary of a run's losses: the first one and the mean of the last ones. Non-finite losses are ignored.
class LossCourse {
 public:
  void add(double loss);
  std::optional<double> first() const { return first_; }
  /// Mean of the last kLast losses, not counting the first one.
  std::optional<double> last() const;
  std::int64_t steps() const { return count_ + (first_ ? 1 : 0); }

 private:
  static constexpr std::size_t kLast = 8;
  std::optional<double> first_;
  std::array<double, kLast> recent_{};
  std::int64_t count_ = 0;  ///< losses after the first
};

/// What losses are compared with: the vocabulary size, which gives the loss of guessing, and whether the learning rate
/// is so high that no model learns.
struct LossYardstick {
  std::int64_t vocabulary = 0;
  bool rate_is_high = false;
};

/// A warning if the losses show that training destroyed the model: it is no better than guessing, although it was
/// better at the start or should have learned.
std::optional<std::string> advice_on_losses(const LossCourse& course, const LossYardstick& scale);

/// A warning if the adapter has no effect because all its B matrices are zero. Collective: every rank calls it.
std::optional<std::string> advice_on_adapter(Ctx& ctx, Transformer& model, Collective& ranks);

}  // namespace qtrain
