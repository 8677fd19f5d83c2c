#pragma once
#include <atomic>
#include <cstddef>
#include <vector>

#include "emulator/nccl/segment.h"

namespace qtrain::stand_in {

/// One transfer of an exchange: bytes to or from another rank. Transfers with the same peer have the same order on both
/// ends.
struct Message {
  int peer;
  Descriptor what;
  std::byte* data = nullptr;
  std::size_t bytes = 0, at = 0;  ///< at: bytes transferred so far
  bool begun = false;

  bool done() const { return begun && at == bytes; }
};

/// Everything that a rank sends and receives at the same time.
struct Exchange {
  std::vector<Message> sends, receives;

  /// Returns false if it was aborted. Throws std::runtime_error if another rank does something different.
  bool run(Segment& segment, int rank, const std::atomic<bool>& aborted);

 private:
  bool push(SharedRanks& ranks, int rank);
  bool pull(SharedRanks& ranks, int rank);
};

}  // namespace qtrain::stand_in
