#pragma once
#include <cstdint>
#include <optional>

#include "core/formats/json.h"

namespace qtrain {

/// How the factors of a new adapter start: PEFT's init_lora_weights.
struct LoraInit {
  enum class Kind : std::uint8_t {
    standard,  ///< true: A as in a linear layer, B zero
    random,    ///< false: both as in a linear layer
    gaussian,  ///< A normal with a standard deviation of 1 / rank, B zero
    pissa,     ///< the largest singular values and vectors of W (Meng et al. 2024)
    olora,     ///< the first columns of Q and rows of R in W = Q R (Büyükakyüz 2024)
    loftq,     ///< the best approximation of what 4-bit quantization takes from W (Li et al. 2023)
  };
  Kind kind = Kind::standard;
  std::optional<int> iterations = {};  ///< of a randomized decomposition, with pissa; none: exact

  /// Reads a value of init_lora_weights; empty if it is unknown.
  static std::optional<LoraInit> parse(const Json& value);
  Json json() const;

  /// Whether the base weights become W - scale * B A.
  bool changes_base() const { return kind == Kind::pissa || kind == Kind::olora; }
  /// Whether the factors depend on the base weights.
  bool reads_base() const { return changes_base() || kind == Kind::loftq; }
  friend bool operator==(const LoraInit&, const LoraInit&) = default;
};

}  // namespace qtrain
