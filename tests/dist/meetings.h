#pragma once
#include <chrono>
#include "dist/store.h"

namespace qtrain::test {

/// Time limits: for what comes, even on a slow machine, and for what must be there.
inline constexpr std::chrono::milliseconds kEnough{20'000}, kNoTime{0};

/// The secret of the ranks of a test, the same in every process.
inline RankSecret rank_secret() {
  return RankSecret::of("known to the ranks of tests");
}

/// A meeting at a free port.
inline Meeting free_meeting() {
  return {.at = {.host = "127.0.0.1"}, .secret = rank_secret()};
}

/// The meeting as ranks find it.
inline Meeting meeting_at(std::uint16_t port) {
  return {.at = {.host = "127.0.0.1", .port = port}, .secret = rank_secret()};
}

}  // namespace qtrain::test
