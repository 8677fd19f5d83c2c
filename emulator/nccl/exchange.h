#pragma once
#include <atomic>
#include <cstddef>
#include <vector>

#include "emulator/nccl/segment.h"

namespace qtrain::stand_in {

/// A part of an exchange: bytes to or from another rank. Those with the same rank are in the same order on both ends.
struct Message {
  int peer;
  Descriptor what;
  std::byte* data = nullptr;
  std::size_t bytes = 0, at = 0;  ///< done so far
  bool begun = false;

  bool done() const { return begun && at == bytes; }
};

/// What a rank sends and receives at once.
struct Exchange {
  std::vector<Message> sends, receives;

  /// False if it was aborted. Throws std::runtime_error where another rank does something else.
  bool run(Segment& segment, int rank, const std::atomic<bool>& aborted);

 private:
  bool push(SharedRanks& ranks, int rank);
  bool pull(SharedRanks& ranks, int rank);
};

}  // namespace qtrain::stand_in
