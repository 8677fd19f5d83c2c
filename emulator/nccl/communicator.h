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

/// One call of a communicator, as it was made.
struct Call {
  Descriptor::Kind kind;
  const void* from = nullptr;
  void* to = nullptr;
  std::size_t count = 0;
  nccl::DataType type{};
  int detail = 0;         ///< operation, root; of `send` the other rank
  bool receives = false;  ///< the other end of `send`
  nccl::StreamHandle stream = nullptr;
};

/// A rank's place among the others.
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  struct Place {
    std::string meeting;  ///< the name of the shared memory
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
  /// Waits for the other ranks, or, where it does not block, lets a thread do so.
  nccl::Result begin();
  /// What ncclCommGetAsyncError says. Calls that were accepted are queued while somebody asks.
  nccl::Result state();
  /// What every other call has to begin with.
  nccl::Result require_ready();
  nccl::Result accept(const std::vector<Call>& calls);
  nccl::Result finalize();
  void give_up();
  /// Whether no call waits on a stream.
  bool is_quiet() const { return running_ == 0; }
  /// False while another thread is in a call: NCCL is not to be called by two at a time.
  bool enter() { return !inside_.exchange(true); }
  void leave() { inside_ = false; }
  /// What is wrong with a call, if anything is.
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
  std::atomic<int> running_ = 0;  ///< queued, and not done
  Phase phase_ = Phase::begins;
  nccl::Result failure_ = nccl::success;
  std::string error_;
  std::vector<Call> accepted_;
  std::set<Descriptor::Kind> connected_;  ///< kinds of calls that have their connections
  int polls_ = 0;                         ///< for which an accepted call is still in progress
  std::int64_t numbers_ = 0;
  std::int64_t fails_at_ = 0;  ///< the number of a call that an error of the network ends
};

/// Calls of all communicators of this process that the device is at.
std::atomic<int>& executing();

/// Size of an element; 0 for a type that is not known here.
std::size_t size_of(nccl::DataType type);

}  // namespace qtrain::stand_in
