#pragma once
#include <cstdint>
#include <functional>

#include "hub/http_client.h"
#include "hub/transfer_progress.h"

namespace qtrain {

/// Takes note of bytes that have come or gone; returns false if the transfer should end, because another one has
/// failed.
using Advance = std::function<bool(std::int64_t bytes)>;

/// Transfers of files by several threads, each with its own connection.
struct ParallelTransfers {
  std::size_t count = 0;
  int connections = 4;
  TransferProgress& progress;
  std::function<void(HttpClient& client, std::size_t index, const Advance& advance)> transfer;
};
/// Calls `transfer` for each index below `count`, in order. The first error ends all transfers, and is thrown.
void run_transfers(const ParallelTransfers& transfers);

}  // namespace qtrain
