#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>

#include "dist/nccl_library.h"

namespace qtrain {

/// Thrown when a wait for other ranks is aborted.
struct NcclWaitEnded : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// An NCCL communicator of this rank. Its calls do not block but are polled, so that a missing rank is noticed.
class NcclCommunicator {
 public:
  struct Place {
    nccl::UniqueId id;
    int rank = 0, size = 1;
    std::chrono::milliseconds timeout{};  ///< of each call
    std::function<bool()> misses_rank;    ///< whether a rank has ended, which ends all waits
  };
  /// Uses the selected device; all ranks must do this at about the same time. This and `run` throw std::runtime_error
  /// with the library's message, or NcclWaitEnded, which is one.
  NcclCommunicator(const NcclLibrary& library, const Place& place);
  /// Leaves together with the other ranks, or alone during stack unwinding.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  /// Makes a call, or several between group_start and group_end, and waits until it is queued on its stream.
  using Act = std::function<nccl::Result(const nccl::Functions& functions, nccl::Comm* comm)>;
  void run(const char* what, const Act& act);

  /// The error of queued calls, or empty if there is none so far. Thread-safe.
  std::string queued_error();
  /// Aborts queued work that waits for other ranks. Nothing may be called afterwards. Thread-safe.
  void give_up();

 private:
  void settle(const char* what, nccl::Result result, std::chrono::milliseconds patience);
  std::string text_of(nccl::Result result) const;
  void leave();

  const NcclLibrary& library_;
  std::chrono::milliseconds timeout_;
  std::function<bool()> misses_rank_;
  std::atomic<bool> given_up_ = false;
  std::mutex mutex_;
  nccl::Comm* comm_ = nullptr;
};

}  // namespace qtrain
