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

/// Reads the next bytes of a connection; returns false if it cannot.
using ReadBytes = std::function<bool(std::span<std::byte>)>;

/// A request to the store, and its bytes. Lengths are only accepted within limits, and memory is only allocated for
/// what has arrived.
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
