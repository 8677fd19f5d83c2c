#include "emulator/nccl/communicator.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "emulator/nccl/operation.h"

namespace qtrain::stand_in {
namespace {

constexpr std::size_t kConnectionBytes = 4096;  // per kind of call
constexpr int kPolls = 2;                       // number of polls for which a non-blocking call stays in progress

bool overlap(const void* a, const void* b, std::size_t bytes_a, std::size_t bytes_b) {
  return emulation::overlaps(emulation::reads(a, bytes_a), b, bytes_b);
}

}  // namespace

std::atomic<int>& executing() {
  static std::atomic<int> count = 0;
  return count;
}

std::size_t size_of(nccl::DataType type) {
  switch (type) {
    case nccl::u8: return 1;
    case nccl::f16:
    case nccl::bf16: return 2;
    case nccl::f32: return 4;
    case nccl::f64:
    case nccl::i64: return 8;
    default: return 0;
  }
}

Communicator::Communicator(Place place) : place_(std::move(place)), segment_(place_.meeting) {
  if (const char* number = std::getenv("QTRAIN_STAND_IN_NCCL_FAILS")) fails_at_ = std::atoll(number);
}

Communicator::~Communicator() {
  aborted_ = true;
  if (meeting_.joinable()) meeting_.join();
}

nccl::Result Communicator::begin() {
  if (const char* signal = std::getenv("QTRAIN_STAND_IN_NCCL_RAISES")) std::raise(std::atoi(signal));
  meeting_ = std::thread([this] { meet(); });
  if (!place_.blocks) return nccl::in_progress;
  meeting_.join();
  return state();
}

void Communicator::meet() {
  Member& mine = segment_->members[place_.rank];
  if (mine.claimed.exchange(1) != 0) {
    const std::lock_guard lock(mutex_);
    refuse(nccl::invalid_usage, "rank " + std::to_string(place_.rank) + " exists twice for one ncclUniqueId");
    return;
  }
  mine.size = place_.size;
  mine.device = place_.device;
  mine.host = place_.host;
  mine.arrived = 1;
  for (int r = 0; r < place_.size; ++r)
    while (!aborted_ && segment_->members[r].arrived == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (aborted_) return;
  const std::lock_guard lock(mutex_);
  for (int r = 0; r < place_.size; ++r) {
    const Member& other = segment_->members[r];
    if (other.size != place_.size)
      refuse(nccl::invalid_argument,
             "rank " + std::to_string(r) + " was started with " + std::to_string(other.size) + " ranks");
    if (r != place_.rank && other.host == place_.host && other.device == place_.device)
      refuse(nccl::invalid_usage, "Duplicate GPU detected : rank " + std::to_string(place_.rank) + " and rank " +
                                      std::to_string(r) + " both on CUDA device " + std::to_string(place_.device));
  }
  if (place_.rank == 0) segment_.forget_name();
  phase_ = Phase::ready;
  met_ = true;
}

nccl::Result Communicator::refuse(nccl::Result result, const std::string& why) {
  failure_ = result;
  error_ = why;
  return result;
}

void Communicator::fail_on_the_way() {
  const std::lock_guard lock(mutex_);
  refuse(nccl::remote_error, "a connection was closed");
}

std::string Communicator::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

nccl::Result Communicator::state() {
  const std::lock_guard lock(mutex_);
  if (failure_ != nccl::success) return failure_;
  if (!met_) return nccl::in_progress;
  if (polls_ > 0) {
    if (--polls_ > 0) return nccl::in_progress;
    queue_all();
  }
  return phase_ == Phase::finalized && running_ > 0 ? nccl::in_progress : nccl::success;
}

nccl::Result Communicator::require_ready() {
  const std::lock_guard lock(mutex_);
  if (failure_ != nccl::success) return failure_;
  if (!met_ || polls_ > 0)
    return refuse(nccl::invalid_argument, "a call before the previous one has returned ncclSuccess");
  if (phase_ != Phase::ready) return refuse(nccl::invalid_usage, "a call of a communicator that was finalized");
  return nccl::success;
}

nccl::Result Communicator::problem_of(const Call& call) {
  const std::size_t bytes = call.count * size_of(call.type);
  const bool reduces = call.kind == Descriptor::all_reduce || call.kind == Descriptor::reduce_scatter;
  const bool named = call.kind == Descriptor::broadcast || call.kind == Descriptor::send;
  if (bytes == 0) return refuse(nccl::invalid_argument, "an unknown type");
  if (reduces && call.type == nccl::u8) return refuse(nccl::invalid_argument, "reductions of bytes are not supported");
  if (reduces && call.detail != nccl::sum && call.detail != nccl::max)
    return refuse(nccl::invalid_argument, "an unknown operation");
  if (named && (call.detail < 0 || call.detail >= place_.size))
    return refuse(nccl::invalid_argument, "there is no rank " + std::to_string(call.detail));
  const auto share = bytes * static_cast<std::size_t>(place_.rank), all = bytes * static_cast<std::size_t>(place_.size);
  const auto* from = static_cast<const std::byte*>(call.from);
  const auto* to = static_cast<const std::byte*>(call.to);
  bool wrong = false;
  if (call.kind == Descriptor::all_gather) wrong = from != to + share && overlap(from, to, bytes, all);
  if (call.kind == Descriptor::reduce_scatter) wrong = to != from + share && overlap(from, to, all, bytes);
  if (call.kind == Descriptor::all_reduce) wrong = from != to && overlap(from, to, bytes, bytes);
  if (wrong) return refuse(nccl::invalid_argument, "buffers overlap, but not as in an in-place operation");
  return nccl::success;
}

nccl::Result Communicator::judge(const Call& call) {
  const std::lock_guard lock(mutex_);
  return call.count == 0 ? nccl::success : problem_of(call);
}

nccl::Result Communicator::accept(const std::vector<Call>& calls) {
  const std::lock_guard lock(mutex_);
  for (const Call& call : calls) {
    if (call.count == 0) continue;
    if (const nccl::Result problem = problem_of(call); problem != nccl::success) return problem;
    if (qtrain_emulated_records(call.stream) != qtrain_emulated_records(calls.front().stream))
      return refuse(nccl::invalid_usage, "a group mixes streams that are being captured with others");
    if (connected_.insert(call.kind).second) qtrain_emulated_take(kConnectionBytes);
    accepted_.push_back(call);
  }
  if (!place_.blocks) {
    polls_ = kPolls;
    return nccl::in_progress;
  }
  queue_all();
  return nccl::success;
}

// Queues collectives one by one, and all sends and receives that were issued together as one operation.
void Communicator::queue_all() {
  std::vector<Call> calls = std::exchange(accepted_, {});
  const auto sends =
      std::stable_partition(calls.begin(), calls.end(), [](const Call& c) { return c.kind != Descriptor::send; });
  const auto queue = [&](const std::vector<Call>& part) {
    ++running_;
    const Operation operation(shared_from_this(), part, ++numbers_);
    qtrain_emulated_enqueue(part.front().stream, operation.work());
  };
  for (auto it = calls.begin(); it != sends; ++it) queue({*it});
  if (sends != calls.end()) queue({sends, calls.end()});
}

nccl::Result Communicator::finalize() {
  const std::lock_guard lock(mutex_);
  phase_ = Phase::finalized;
  return place_.blocks && running_ == 0 ? nccl::success : nccl::in_progress;
}

// Waits for running device work of all communicators, as NCCL does when it frees memory.
void Communicator::give_up() {
  aborted_ = true;
  while (executing() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const std::lock_guard lock(mutex_);
  if (place_.rank == 0 && !met_) segment_.forget_name();
  phase_ = Phase::given_up;
}

}  // namespace qtrain::stand_in
