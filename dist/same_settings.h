#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <string>

#include "dist/store.h"

namespace qtrain {

/// Settings that must be equal on all ranks, by user-visible names such as config keys.
using RankSettings = std::map<std::string, std::string>;

/// Which rank has the settings, of how many, and how long all of them may take to arrive.
struct SettingsOf {
  int rank = 0, ranks = 1;
  std::chrono::milliseconds timeout{};
  std::function<void()> meanwhile = {};  ///< called while waiting for others; may throw to end the wait
};

/// Compares the settings of all ranks through the store as soon as they arrive, before the ranks exchange anything
/// else. Throws the same error on all ranks: ErrorKind::usage with what differs and both values; ErrorKind::peer with a
/// rank that does not connect or has ended.
void require_same_settings(Store& store, const SettingsOf& mine, const RankSettings& settings);

}  // namespace qtrain
