#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/error.h"
#include "data/packing.h"
#include "data/sampler.h"
#include "data/source/mix_strategy.h"
#include "model/lora_init.h"
#include "optim/schedule.h"

namespace qtrain {

/// The names of a config enumeration's values, in order, from fields.yaml. Used for parsing, messages and the reference
/// page.
template <class E>
inline constexpr std::array<std::string_view, 0> kNamesOf{};

/// What happens when the value of a key differs from that in the checkpoint of a resumed run.
enum class OnResume : std::uint8_t {
  refused,  ///< an error: the rest of the run would not match the checkpoint
  rows,     ///< an error that names the key if the training rows changed; otherwise without effect
  saved,    ///< like rows; if the rows are the same, a note: the value is saved with the tokenizer or template
  update,   ///< a note: users change deliberately how the remaining steps update the weights
  note,     ///< a note: the key changes the weights at most by rounding
  silent,   ///< nothing: results do not depend on it
};

enum class EvalStrategy : std::uint8_t { no, steps, epoch };

enum class SaveStrategy : std::uint8_t { no, steps, epoch, best };

/// What is packed together: TRL packs each batch of 1,000 rows by itself.
enum class PackingScope : std::uint8_t { batch, dataset };

/// How the auxiliary loss of routers enters an update: as in TRL, which turns it on and averages it over micro-batches,
/// or as in Trainer, where the model's config.json turns it on and micro-batches are summed.
enum class RouterLossMode : std::uint8_t { trl, trainer };

enum class LossType : std::uint8_t { nll, chunked_nll, dft };

enum class Fp8RecipeChoice : std::uint8_t { automatic, tensorwise, blockwise };

enum class DeviceChoice : std::uint8_t { automatic, cpu, cuda };

/// Which intermediates the backward pass recomputes: a name from model/recompute.h, or kAuto. In JSON false is "none"
/// and true is "block".
struct Recompute {
  std::string policy = "block";

  static constexpr std::string_view kAuto = "auto";  ///< the fastest policy that fits into memory
  friend bool operator==(const Recompute&, const Recompute&) = default;
};

/// Whether to keep a second copy of weights in the form that GEMMs read. In JSON false and true are "never" and
/// "always".
enum class CopyChoice : std::uint8_t { never, always, automatic };

/// The names of an enumeration's values. Those of schedules are in optim, including unavailable schedules, for which
/// it has its own error.
template <class E>
std::span<const std::string_view> names_of() {
  if constexpr (std::is_same_v<E, ScheduleKind>)
    return schedule_names();
  else
    return kNamesOf<E>;
}
template <class E>
std::string_view name_of_enum(E e) {
  return names_of<E>()[static_cast<std::size_t>(e)];
}
/// The value of that name, which comes from a table and must exist.
template <class E>
E value_named(std::string_view name) {
  const auto names = names_of<E>();
  const auto at = std::ranges::find(names, name);
  check(at != names.end(), "a table has a word that its type does not have");
  return static_cast<E>(at - names.begin());
}

}  // namespace qtrain
