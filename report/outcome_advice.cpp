#include "report/outcome_advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/transfer.h"

namespace qtrain {
namespace {

/// A loss this close to log(vocabulary) comes from logits that are all equal; random weights are farther away from it.
constexpr double kGuess = 1e-4;
/// Increase of the loss in nats that noise between batches cannot explain.
constexpr double kWorse = 0.5;
/// Fraction of log(vocabulary) above which a model is hardly better than guessing.
constexpr double kNearGuess = 0.9;
/// Minimum number of steps for a loss that stays at log(vocabulary) to mean something.
constexpr std::int64_t kSteps = 4;

enum class Kind : std::uint8_t { a, b, magnitude, other };

Kind kind_of(const std::string& name) {
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  if (has(".lora_B.") || has(".lora_embedding_B")) return Kind::b;
  if (has(".lora_A.") || has(".lora_embedding_A")) return Kind::a;
  return has("lora_magnitude_vector") ? Kind::magnitude : Kind::other;
}

bool is_zero(Ctx& ctx, const Param& p) {
  bool zero = true;
  if (p.own.count() == 0) return zero;
  read_chunks(ctx, p.own.value, [&](ConstTensor chunk) {
    const std::span bytes(chunk.data, chunk.bytes());
    zero = zero && std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{}; });
  });
  return zero;
}

}  // namespace

void LossCourse::add(double loss) {
  if (!std::isfinite(loss)) return;
  if (!first_) {
    first_ = loss;
    return;
  }
  recent_[static_cast<std::size_t>(count_++) % kLast] = loss;
}

std::optional<double> LossCourse::last() const {
  const auto n = static_cast<std::size_t>(std::min<std::int64_t>(count_, kLast));
  if (n == 0) return {};
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += recent_[i];
  return sum / static_cast<double>(n);
}

std::optional<std::string> advice_on_losses(const LossCourse& course, const LossYardstick& by) {
  const std::optional<double> first = course.first(), last = course.last();
  if (!first || !last || by.vocabulary < 2) return {};
  const double guess = std::log(static_cast<double>(by.vocabulary));
  const bool guesses = std::abs(*last - guess) < kGuess;
  const bool worse = *last > kNearGuess * guess && *last > *first + kWorse;
  const bool stays = by.rate_is_high && course.steps() >= kSteps && *last > kNearGuess * guess;
  if (!guesses && !worse && !stays) return {};
  return fmt::format(
      "training destroyed the model: its loss was {:.4f} at the first step and is {:.4f} at the end; guessing among "
      "its {} tokens gives {:.4f}. Lower learning_rate and check the data.",
      *first, *last, by.vocabulary, guess);
}

std::optional<std::string> advice_on_adapter(Ctx& ctx, Transformer& model, Collective& ranks) {
  if (!model.options().lora) return {};
  bool idle = true;
  for (const Param& p : model.adapter().all()) {
    const Kind kind = kind_of(p.spec.name);
    if (kind == Kind::other || (kind == Kind::b && !is_zero(ctx, p))) idle = false;
  }
  for (const std::string& of_rank : gather_texts(ctx, ranks, idle ? "idle" : ""))
    if (of_rank.empty()) return {};
  return "the adapter has no effect: its B matrices are still all zero, as at the start; learning_rate may be zero or "
         "too low, or all updates were skipped";
}

}  // namespace qtrain
