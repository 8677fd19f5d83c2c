#include "tests/fuzz/rank_targets.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "dist/handshake.h"
#include "dist/plain_words.h"
#include "dist/store_request.h"

namespace qtrain::fuzz {
namespace {

/// Reads from a connection that ends after these bytes.
ReadBytes reading(std::string_view& bytes) {
  return [&bytes](std::span<std::byte> into) {
    if (bytes.size() < into.size()) return false;
    std::memcpy(into.data(), bytes.data(), into.size());
    bytes.remove_prefix(into.size());
    return true;
  };
}

}  // namespace

// A request that can be read is written as the same bytes.
void store_request(std::string_view bytes) {
  const ReadBytes read = reading(bytes);
  for (std::string_view before = bytes; const auto request = StoreRequest::from(read); before = bytes) {
    check(request->key.size() <= kMaxStoreKey && request->value.size() <= kMaxStoreValue,
          "a request beyond its bounds");
    const std::string again = request->bytes();
    constexpr std::size_t kPatience = 4;  // which is cut
    check(again.size() == before.size() - bytes.size(), "a request of another size");
    check(before.substr(2 * kPatience, again.size() - 2 * kPatience) == again.substr(2 * kPatience), "another request");
  }
}

void store_answer(std::string_view bytes) {
  const ReadBytes read = reading(bytes);
  for (std::string_view before = bytes; const auto answer = StoreAnswer::from(read); before = bytes)
    check(before.substr(0, before.size() - bytes.size()) == answer->bytes(), "another answer");
}

// No one gets in with bytes that existed before the handshake began.
void rank_handshake(std::string_view bytes) {
  static const RankSecret secret = RankSecret::random();
  for (const auto side : {Handshake::Side::called, Handshake::Side::caller}) {
    Handshake handshake(side, {.secret = secret, .purpose = "store"});
    for (std::string_view left = bytes; handshake.wanted() > 0 && !left.empty();) {
      const std::size_t n = std::min({handshake.wanted(), left.size(), std::size_t{7}});
      handshake.take(left.substr(0, n));
      left.remove_prefix(n);
    }
    check(handshake.state() != Handshake::State::proved, "a stranger was let in");
  }
}

void rank_words(std::string_view bytes) {
  const std::string words = plain_words(bytes, bytes.size());
  check(plain_words(words, words.size()) == words, "words that are not plain");
  check(std::ranges::none_of(words, [](unsigned char c) { return (c < 0x20 && c != '\t') || c == 0x7f; }),
        "a control character");
}

}  // namespace qtrain::fuzz
