#pragma once
#include <chrono>
#include <memory>

#include "dist/collective.h"
#include "dist/lost_rank.h"

namespace qtrain {

/// Collectives for GPU tensors with NCCL, queued on the stream of the context without waiting; host tensors use `host`.
/// Both tensors of a call must be on the same side. A call that a rank does not reach is aborted after `timeout`; then
/// the next wait for the stream, and every call, throws ErrorKind::peer with the name of that rank. Each part has its
/// own communicator; aborting a call of one aborts all. Waits until all ranks of `host` are there. Throws
/// ErrorKind::usage if NCCL cannot be used.
struct NcclOptions {
  Device device;
  std::chrono::milliseconds timeout{};
};
std::unique_ptr<Collective> connect_nccl(std::unique_ptr<Collective> host, const NcclOptions& options,
                                         const RankWatch& watch);

}  // namespace qtrain
