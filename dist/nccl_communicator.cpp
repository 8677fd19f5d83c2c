#include "dist/nccl_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <thread>
#include <utility>

#include "core/error.h"

namespace qtrain {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kLeaving{10'000};  // time for the other ranks to finish too

[[noreturn]] void fail_as_disconnected(const char* what) {
  throw std::runtime_error(fmt::format("{}: the ranks have disconnected", what));
}

}  // namespace

NcclCommunicator::NcclCommunicator(const NcclLibrary& library, const Place& place)
    : library_(library), timeout_(place.timeout), misses_rank_(place.misses_rank) {
  nccl::Config config;
  try {
    const nccl::Result begun = library->comm_init_rank_config(&comm_, place.size, place.id, place.rank, &config);
    settle("ncclCommInitRankConfig", begun, timeout_);
  } catch (const std::runtime_error&) {
    give_up();
    throw;
  }
}

NcclCommunicator::~NcclCommunicator() {
  try {
    if (std::uncaught_exceptions() == 0) leave();
  } catch (const std::runtime_error&) {  // another rank did not finish
  }
  give_up();
}

void NcclCommunicator::leave() {
  if (!comm_) return;
  settle("ncclCommFinalize", library_->comm_finalize(comm_), std::min(kLeaving, timeout_));
  library_->comm_destroy(std::exchange(comm_, nullptr));
}

void NcclCommunicator::run(const char* what, const Act& act) {
  const std::lock_guard lock(mutex_);
  if (!comm_) fail_as_disconnected(what);
  settle(what, act(*library_.operator->(), comm_), timeout_);
}

// Polls until NCCL has finished the call or it has failed.
void NcclCommunicator::settle(const char* what, nccl::Result result, milliseconds patience) {
  constexpr int kQuick = 100;  // polls without a pause, because most calls are queued immediately
  const auto end = Clock::now() + patience;
  for (int polls = 0; result == nccl::in_progress; ++polls) {
    if (polls >= kQuick) std::this_thread::sleep_for(std::chrono::microseconds(50));
    if (given_up_) fail_as_disconnected(what);
    if (polls >= kQuick && misses_rank_()) throw NcclWaitEnded(fmt::format("{}: a rank has ended", what));
    if (Clock::now() > end)
      throw NcclWaitEnded(
          fmt::format("{} is not finished after {:.0f} s", what, std::chrono::duration<double>(patience).count()));
    if (const nccl::Result asked = library_->comm_get_async_error(comm_, &result); asked != nccl::success)
      result = asked;
  }
  if (result != nccl::success) throw std::runtime_error(fmt::format("{}: {}", what, text_of(result)));
}

std::string NcclCommunicator::text_of(nccl::Result result) const {
  const char* last = library_->get_last_error(comm_);
  const std::string detail = last ? last : "";
  return library_->get_error_string(result) + (detail.empty() ? "" : " (" + detail + ")");
}

std::string NcclCommunicator::queued_error() {
  const std::unique_lock lock(mutex_, std::try_to_lock);  // otherwise a call is running, which will report errors
  if (!lock || !comm_) return {};
  nccl::Result result = nccl::success;
  if (const nccl::Result asked = library_->comm_get_async_error(comm_, &result); asked != nccl::success) result = asked;
  return result == nccl::success || result == nccl::in_progress ? std::string() : text_of(result);
}

void NcclCommunicator::give_up() {
  given_up_ = true;  // ends a call that is running on another thread
  const std::lock_guard lock(mutex_);
  if (comm_) library_->comm_abort(std::exchange(comm_, nullptr));
}

}  // namespace qtrain
