#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <string>

#include "dist/store.h"

namespace qtrain {

/// Settings that must be equal on all ranks, by user-visible names such as config keys.
using RankSettings = std::map<std::string, std::string>;

/// Which rank has them, of how many, and how long all of them may take to come.
struct SettingsOf {
  int rank = 0, ranks = 1;
  std::chrono::milliseconds timeout{};
  std::function<void()> meanwhile = {};  ///< called while others are waited for; ends that where it throws
};

/// Compares them by the store as soon as a rank comes, before the ranks exchange anything else. Errors, the same on all
/// ranks: ErrorKind::usage names what differs and both values; ErrorKind::peer a rank that does not come, or one that
/// has ended.
void require_same_settings(Store& store, const SettingsOf& mine, const RankSettings& settings);

}  // namespace qtrain
