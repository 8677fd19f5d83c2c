#pragma once
#include "dist/store.h"

namespace qtrain::test {

/// That of the ranks of a test, in whichever process they are.
inline RankSecret rank_secret() {
  return RankSecret::of("known to the ranks of tests");
}

/// At a port that is free.
inline Meeting free_meeting() {
  return {.at = {.host = "127.0.0.1"}, .secret = rank_secret()};
}

/// As ranks find it.
inline Meeting meeting_at(std::uint16_t port) {
  return {.at = {.host = "127.0.0.1", .port = port}, .secret = rank_secret()};
}

}  // namespace qtrain::test
