#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

namespace qtrain {

/// The longest name and value in the store of ranks.
inline constexpr std::size_t kMaxStoreKey = 256, kMaxStoreValue = std::size_t{1} << 20;

/// Hands out the next bytes of a connection, or none.
using ReadBytes = std::function<bool(std::span<std::byte>)>;

/// What a rank asks of the store, and the bytes for it. Lengths are believed within bounds alone, and memory is taken
/// for what has come.
struct StoreRequest {
  enum class Verb : std::uint8_t { set = 1, get = 2 };
  Verb verb = Verb::get;
  std::chrono::milliseconds patience{};  ///< of a get
  std::string key, value = {};

  std::string bytes() const;
  /// Returns nothing if the bytes are not a request.
  static std::optional<StoreRequest> from(const ReadBytes& read);
};

/// What the store answers: a value, or that there is none.
struct StoreAnswer {
  std::optional<std::string> value;

  std::string bytes() const;
  /// Returns nothing if the bytes are not an answer.
  static std::optional<StoreAnswer> from(const ReadBytes& read);
};

}  // namespace qtrain
