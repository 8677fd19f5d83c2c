#pragma once
#include <chrono>
#include <memory>

#include "dist/collective.h"
#include "dist/lost_rank.h"

namespace qtrain {

/// Collectives by NCCL for tensors of a GPU, queued on the stream of the context and not waited for; those of the host
/// go by `host`. Both tensors of a call are on the same side. A call that a rank does not come to is given up after
/// `timeout`; then the next wait for the stream, and every call, ends with ErrorKind::peer and the name of that rank.
/// Parts have a communicator each; a call of one that is given up ends all. Waits until all ranks of `host` are there.
/// Errors: ErrorKind::usage where NCCL cannot be used.
struct NcclOptions {
  Device device;
  std::chrono::milliseconds timeout{};
};
std::unique_ptr<Collective> connect_nccl(std::unique_ptr<Collective> host, const NcclOptions& options,
                                         const RankWatch& watch);

}  // namespace qtrain
