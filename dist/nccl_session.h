#pragma once
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "core/context.h"
#include "dist/lost_rank.h"
#include "dist/nccl_communicator.h"
#include "dist/nccl_library.h"
#include "dist/queued_calls.h"

namespace qtrain {

/// What all communicators of this process share: the library, and the watch over calls that wait on the device.
/// Aborting one call aborts all communicators, because any work queued after it has read wrong values.
class NcclSession {
 public:
  struct Options {
    Device device;
    std::chrono::milliseconds timeout{};  ///< of each call
  };
  NcclSession(const Options& options, const RankWatch& watch);

  const NcclLibrary& library() const { return library_; }
  const Options& options() const { return options_; }
  const RankWatch& watch() const { return watch_; }

  /// Queues a call of a communicator; `text` describes it in messages.
  struct Call {
    const char* name;
    std::string text;
    NcclCommunicator& ranks;
  };
  void queue(Ctx& ctx, const Call& call, const NcclCommunicator::Act& act);

  /// Aborts queued work that waits for other ranks, and every later call. Thread-safe.
  void end();
  /// Throws ErrorKind::peer after a call was aborted.
  void throw_if_given_up();

  void add(NcclCommunicator& communicator);
  void remove(NcclCommunicator& communicator);

 private:
  std::string queued_error();
  void give_up();

  NcclLibrary library_;
  Options options_;
  RankWatch watch_;
  std::mutex mutex_;
  std::vector<NcclCommunicator*> communicators_;
  QueuedCalls queued_;  ///< last, because its thread uses the other members
};

}  // namespace qtrain
