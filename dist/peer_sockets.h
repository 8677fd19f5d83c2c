#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "dist/store.h"

namespace qtrain {

/// `size` ranks of a run from `first` on, each `stride`-th, of which this one is number `rank`, and where in the store
/// they meet.
struct RankPart {
  int first = 0, size = 1, rank = 0, stride = 1;
  std::string meeting = "gloo/";

  /// The rank in the whole run.
  int number(int i) const { return first + stride * i; }
};

/// A connection to each of the ranks of a part; that to itself is empty. Every rank listens at a port of the interface
/// that leads to the store, and calls those before it; both ends prove that they know the secret of the run, so a
/// stranger at such a port is turned away. Waits for up to `timeout`. Errors: ErrorKind::peer where a rank does not
/// come; std::runtime_error where one has ended meanwhile.
std::vector<Descriptor> connect_peers(Store& store, const RankPart& part, std::chrono::milliseconds timeout);

}  // namespace qtrain
