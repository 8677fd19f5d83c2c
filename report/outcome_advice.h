#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "core/context.h"
#include "dist/collective.h"
#include "model/transformer.h"

namespace qtrain {

/// The losses of a run in short: that of its first step, and the mean of its last ones. Those that are not finite do
/// not count.
class LossCourse {
 public:
  void add(double loss);
  std::optional<double> first() const { return first_; }
  /// Of at most kLast steps behind the first.
  std::optional<double> last() const;
  std::int64_t steps() const { return count_ + (first_ ? 1 : 0); }

 private:
  static constexpr std::size_t kLast = 8;
  std::optional<double> first_;
  std::array<double, kLast> recent_{};
  std::int64_t count_ = 0;  ///< behind the first
};

/// What losses are judged by: that of a guess among all tokens, and whether the learning rate is one at which no model
/// learns.
struct LossYardstick {
  std::int64_t vocabulary = 0;
  bool rate_is_high = false;
};

/// What is to be said where the losses of a run show that its updates destroyed the model: it does no better than a
/// guess, and was better at the start, or never came to be.
std::optional<std::string> advice_on_losses(const LossCourse& course, const LossYardstick& scale);

/// What is to be said of an adapter that changes nothing, since all of its B are zero. Every rank calls it.
std::optional<std::string> advice_on_adapter(Ctx& ctx, Transformer& model, Collective& ranks);

}  // namespace qtrain
