#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "dist/store.h"

namespace qtrain {

/// A part of a run: `size` ranks, every `stride`-th from `first` on, of which this one is number `rank`. `meeting` is
/// the prefix of their keys in the store.
struct RankPart {
  int first = 0, size = 1, rank = 0, stride = 1;
  std::string meeting = "gloo/";

  /// The global rank of number `i`.
  int number(int i) const { return first + stride * i; }
};

/// Connects to each rank of a part; the entry of this rank is empty. Every rank listens at the interface that leads to
/// the store, on the machine of the store at all addresses of its name, and connects to lower ranks; both ends prove
/// that they know the secret of the run, so strangers are turned away. Waits for up to `timeout`. Throws
/// ErrorKind::peer if a rank does not connect, std::runtime_error if one has ended meanwhile.
std::vector<Descriptor> connect_peers(Store& store, const RankPart& part, std::chrono::milliseconds timeout);

}  // namespace qtrain
