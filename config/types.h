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
#include "optim/schedule.h"

namespace qtrain {

/// The names of an enumeration of configs, in its order: those of fields.yaml. Parsing, messages and the reference page
/// use the list.
template <class E>
inline constexpr std::array<std::string_view, 0> kNamesOf{};

/// What another value of a key means for a run that goes on from a checkpoint.
enum class OnResume : std::uint8_t {
  refused,  ///< the rest of the run would not fit what is in the checkpoint
  rows,     ///< names the cause where the training rows have become others, which is refused; else without effect
  saved,    ///< likewise; where the rows are the same, one line says it: the saved tokenizer or template has it
  update,   ///< how the steps to come update the weights: a change that people make on purpose, which one line says
  note,     ///< like update, for keys that change the weights at most by rounding
  silent,   ///< results do not depend on it
};

enum class EvalStrategy : std::uint8_t { no, steps, epoch };

enum class SaveStrategy : std::uint8_t { no, steps, epoch, best };

/// What is packed together: TRL packs each batch of 1,000 rows by itself.
enum class PackingScope : std::uint8_t { batch, dataset };

/// How the loss of routers comes to an update: as in TRL, which turns it on and averages it over micro-batches, or as
/// in Trainer, where the model's config.json turns it on and those of micro-batches add up.
enum class RouterLossMode : std::uint8_t { trl, trainer };

enum class DeviceChoice : std::uint8_t { automatic, cpu, cuda };

/// Which intermediates the backward pass computes again: a name of model/recompute.h, or kAuto. In JSON false is
/// "none" and true is "block".
struct Recompute {
  std::string policy = "block";

  static constexpr std::string_view kAuto = "auto";  ///< the fastest policy that fits into memory
  friend bool operator==(const Recompute&, const Recompute&) = default;
};

/// Whether weights are kept a second time, as GEMMs read them. In JSON false and true are "never" and "always".
enum class CopyChoice : std::uint8_t { never, always, automatic };

/// Those of schedules are in optim, with some that are not offered, which have an error of their own.
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
/// The value of that name, which a table has.
template <class E>
E value_named(std::string_view name) {
  const auto names = names_of<E>();
  const auto at = std::ranges::find(names, name);
  check(at != names.end(), "a table has a word that its type does not have");
  return static_cast<E>(at - names.begin());
}

}  // namespace qtrain
