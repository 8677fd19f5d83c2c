#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "data/packing.h"
#include "data/sampler.h"
#include "data/source/mix_strategy.h"

namespace qtrain {

/// Enumerations of a config list their names once; parsing, messages and the reference page use the list.
template <class E>
struct EnumNames;

enum class EvalStrategy : std::uint8_t { no, steps, epoch };
template <>
struct EnumNames<EvalStrategy> {
  static constexpr std::array<std::string_view, 3> values{"no", "steps", "epoch"};
};

enum class SaveStrategy : std::uint8_t { no, steps, epoch, best };
template <>
struct EnumNames<SaveStrategy> {
  static constexpr std::array<std::string_view, 4> values{"no", "steps", "epoch", "best"};
};

template <>
struct EnumNames<Sampling> {
  static constexpr std::array<std::string_view, 3> values{"random", "sequential", "group_by_length"};
};

template <>
struct EnumNames<Packing> {
  static constexpr std::array<std::string_view, 4> values{"none", "bfd", "bfd_split", "wrapped"};
};

template <>
struct EnumNames<MixStrategy> {
  static constexpr std::array<std::string_view, 4> values{"concatenate", "first_exhausted", "all_exhausted",
                                                          "all_exhausted_without_replacement"};
};

/// What is packed together: TRL packs each batch of 1,000 rows by itself.
enum class PackingScope : std::uint8_t { batch, dataset };
template <>
struct EnumNames<PackingScope> {
  static constexpr std::array<std::string_view, 2> values{"batch", "dataset"};
};

template <>
struct EnumNames<KeptEnd> {
  static constexpr std::array<std::string_view, 2> values{"keep_start", "keep_end"};
};

/// How the loss of routers comes to an update: as in TRL, which turns it on and averages it over micro-batches, or as
/// in Trainer, where the model's config.json turns it on and those of micro-batches add up.
enum class RouterLossMode : std::uint8_t { trl, trainer };
template <>
struct EnumNames<RouterLossMode> {
  static constexpr std::array<std::string_view, 2> values{"trl", "trainer"};
};

enum class DeviceChoice : std::uint8_t { automatic, cpu, cuda };
template <>
struct EnumNames<DeviceChoice> {
  static constexpr std::array<std::string_view, 3> values{"auto", "cpu", "cuda"};
};

/// Which intermediates the backward pass computes again: a name of model/recompute.h, or kAuto. In JSON false is
/// "none" and true is "block".
struct Recompute {
  std::string policy = "block";

  static constexpr std::string_view kAuto = "auto";  ///< the fastest policy that fits into memory
  friend bool operator==(const Recompute&, const Recompute&) = default;
};

/// Whether weights are kept a second time, as products read them. In JSON false and true are "never" and "always".
enum class KeptCopies : std::uint8_t { never, always, automatic };
template <>
struct EnumNames<KeptCopies> {
  static constexpr std::array<std::string_view, 3> values{"false", "true", "auto"};
};

template <class E>
constexpr std::string_view name_of_enum(E e) {
  return EnumNames<E>::values[static_cast<std::size_t>(e)];
}

}  // namespace qtrain
