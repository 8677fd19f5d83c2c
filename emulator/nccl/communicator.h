#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "dist/nccl_api.h"
#include "emulator/foreign.h"
#include "emulator/nccl/segment.h"

namespace qtrain::stand_in {

/// One recorded call of a communicator.
struct Call {
  Descriptor::Kind kind;
  const void* from = nullptr;
  void* to = nullptr;
  std::size_t count = 0;
  nccl::DataType type{};
  int detail = 0;         ///< operation or root; for `send` the other rank
  bool receives = false;  ///< the receiving end of `send`
  nccl::StreamHandle stream = nullptr;
};

/// One rank's end of a communicator.
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  struct Place {
    std::string meeting;  ///< name of the shared memory
    int rank = 0, size = 1;
    bool blocks = true;
    int device = 0;
    std::uint64_t host = 0;
  };
  explicit Communicator(Place place);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const Place& place() const { return place_; }
  /// Waits for the other ranks, in a separate thread if the communicator is non-blocking.
  nccl::Result begin();
  /// The result of ncclCommGetAsyncError. Accepted calls are queued as it is polled.
  nccl::Result state();
  /// Checked at the start of every other call.
  nccl::Result require_ready();
  nccl::Result accept(const std::vector<Call>& calls);
  nccl::Result finalize();
  void give_up();
  /// Whether no call is pending on a stream.
  bool is_quiet() const { return running_ == 0; }
  /// Returns false while another thread is in a call: NCCL communicators are not thread-safe.
  bool enter() { return !inside_.exchange(true); }
  void leave() { inside_ = false; }
  /// Validates the arguments of a call.
  nccl::Result judge(const Call& call);
  std::string error() const;

 private:
  friend class Operation;
  enum class Phase : std::uint8_t { begins, ready, finalized, given_up };
  void meet();
  nccl::Result refuse(nccl::Result result, const std::string& why);
  void fail_on_the_way();
  nccl::Result problem_of(const Call& call);
  void queue_all();

  Place place_;
  Segment segment_;
  mutable std::mutex mutex_;
  std::thread meeting_;
  std::atomic<bool> aborted_ = false, met_ = false, inside_ = false;
  std::atomic<int> running_ = 0;  ///< queued but not finished
  Phase phase_ = Phase::begins;
  nccl::Result failure_ = nccl::success;
  std::string error_;
  std::vector<Call> accepted_;
  std::set<Descriptor::Kind> connected_;  ///< kinds of calls whose connections are established
  int polls_ = 0;                         ///< polls for which an accepted call is still in progress
  std::int64_t numbers_ = 0;
  std::int64_t fails_at_ = 0;  ///< the number of a call that fails with a simulated network error
};

/// Number of calls that the device is executing, over all communicators of this process.
std::atomic<int>& executing();

/// Bytes per element; 0 for an unsupported type.
std::size_t size_of(nccl::DataType type);

}  // namespace qtrain::stand_in
