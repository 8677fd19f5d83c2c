// Implements the functions of libnccl.so.2 that dist/nccl_api.h lists on the emulated device. Ranks are processes on
// one machine.
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "emulator/nccl/communicator.h"

namespace qtrain::stand_in {
namespace {

using nccl::Comm;
using nccl::Result;

/// The calls of a thread between ncclGroupStart and ncclGroupEnd.
struct Group {
  int depth = 0;
  std::vector<std::pair<std::shared_ptr<Communicator>, Call>> calls = {};
  Result failed = nccl::success;  ///< result of the first invalid call; the whole group fails then
};

/// The state of the library in this process.
class Library {
 public:
  static Library& instance() {
    static Library library;
    return library;
  }

  Result refuse(Result result, const std::string& why) {
    const std::lock_guard lock(mutex_);
    error_ = why;
    return result;
  }
  const char* error() {
    const std::lock_guard lock(mutex_);
    return error_.c_str();
  }
  std::shared_ptr<Communicator> find(Comm* comm) {
    const std::lock_guard lock(mutex_);
    const auto it = communicators_.find(comm);
    return it == communicators_.end() ? nullptr : it->second;
  }
  Comm* add(std::shared_ptr<Communicator> communicator) {
    const std::lock_guard lock(mutex_);
    auto* comm = reinterpret_cast<Comm*>(communicator.get());
    gone_.push_back(communicator);  // keeps it alive, so that addresses are never reused
    communicators_.emplace(comm, std::move(communicator));
    return comm;
  }
  void remove(Comm* comm) {
    const std::lock_guard lock(mutex_);
    communicators_.erase(comm);
  }
  Group& group() {
    const std::lock_guard lock(mutex_);
    return groups_[std::this_thread::get_id()];
  }

 private:
  std::mutex mutex_;
  std::string error_;
  std::map<Comm*, std::shared_ptr<Communicator>> communicators_;
  std::vector<std::shared_ptr<Communicator>> gone_;
  std::map<std::thread::id, Group> groups_;
};

Result told(Communicator& communicator, Result result) {
  if (result != nccl::success && result != nccl::in_progress)
    return Library::instance().refuse(result, communicator.error());
  return result;
}

// Runs `act` on an existing communicator.
template <class Act>
Result with(Comm* comm, const Act& act) {
  const auto communicator = Library::instance().find(comm);
  if (!communicator)
    return Library::instance().refuse(nccl::invalid_argument,
                                      "the communicator does not exist, or was destroyed or aborted");
  if (!communicator->enter())
    return Library::instance().refuse(nccl::invalid_usage, "two threads call a communicator at the same time");
  const Result result = act(*communicator);
  communicator->leave();
  return told(*communicator, result);
}

Result call(Comm* comm, const Call& c) {
  const auto communicator = Library::instance().find(comm);
  return with(comm, [&](Communicator& ranks) {
    if (const Result ready = ranks.require_ready(); ready != nccl::success) return ready;
    Group& group = Library::instance().group();
    if (group.depth == 0) return ranks.accept({c});
    const Result problem = ranks.judge(c);
    if (group.failed == nccl::success) group.failed = problem;
    group.calls.emplace_back(communicator, c);
    return problem;
  });
}

// As in NCCL, the environment variable overrides the machine's identity.
std::uint64_t host_hash() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  const char* id = std::getenv("NCCL_HOSTID");
  return std::hash<std::string>()(id ? id : name);
}

}  // namespace
}  // namespace qtrain::stand_in

using namespace qtrain::stand_in;
using qtrain::nccl::Comm;
using qtrain::nccl::Config;
using qtrain::nccl::DataType;
using qtrain::nccl::RedOp;
using qtrain::nccl::Result;
using qtrain::nccl::UniqueId;

extern "C" {

Result ncclGetVersion(int* code) {
  const char* version = std::getenv("QTRAIN_STAND_IN_NCCL_VERSION");
  *code = version ? std::atoi(version) : qtrain::nccl::version_code(2, 28, 9);
  return qtrain::nccl::success;
}

Result ncclGetUniqueId(UniqueId* id) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  const std::string name = "/qtrain-nccl-" + std::to_string(::getpid()) + "-" + std::to_string(now);
  std::memset(id->bytes, 0, sizeof id->bytes);
  std::memcpy(id->bytes, name.data(), name.size());
  return qtrain::nccl::success;
}

Result ncclCommInitRankConfig(Comm** comm, int ranks, UniqueId id, int rank, Config* config) {
  *comm = nullptr;
  if (ranks < 1 || ranks > kMaxRanks || rank < 0 || rank >= ranks)
    return Library::instance().refuse(qtrain::nccl::invalid_argument, "the rank is out of range");
  if (config && (config->magic != 0xcafebeef || config->size < offsetof(Config, undefined)))
    return Library::instance().refuse(qtrain::nccl::invalid_argument,
                                      "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
  try {
    auto communicator = std::make_shared<Communicator>(Communicator::Place{.meeting = id.bytes,
                                                                           .rank = rank,
                                                                           .size = ranks,
                                                                           .blocks = !config || config->blocking != 0,
                                                                           .device = qtrain_emulated_device(),
                                                                           .host = host_hash()});
    *comm = Library::instance().add(communicator);
    return told(*communicator, communicator->begin());
  } catch (const std::runtime_error& e) {
    return Library::instance().refuse(qtrain::nccl::system_error, e.what());
  }
}

Result ncclCommGetAsyncError(Comm* comm, Result* error) {
  return with(comm, [&](Communicator& ranks) {
    *error = told(ranks, ranks.state());
    return qtrain::nccl::success;
  });
}

Result ncclCommFinalize(Comm* comm) {
  return with(comm, [](Communicator& ranks) {
    const Result ready = ranks.require_ready();
    return ready == qtrain::nccl::success ? ranks.finalize() : ready;
  });
}

Result ncclCommDestroy(Comm* comm) {
  const Result result = with(
      comm, [](Communicator& ranks) { return ranks.is_quiet() ? qtrain::nccl::success : qtrain::nccl::invalid_usage; });
  if (result == qtrain::nccl::success) Library::instance().remove(comm);
  return result;
}

Result ncclCommAbort(Comm* comm) {
  const Result result = with(comm, [](Communicator& ranks) {
    ranks.give_up();
    return qtrain::nccl::success;
  });
  Library::instance().remove(comm);
  return result;
}

const char* ncclGetErrorString(Result result) {
  switch (result) {
    case qtrain::nccl::success: return "no error";
    case qtrain::nccl::invalid_argument: return "invalid argument";
    case qtrain::nccl::invalid_usage: return "invalid usage";
    case qtrain::nccl::in_progress: return "NCCL operation in progress";
    default: return "unhandled system error";
  }
}

const char* ncclGetLastError(Comm*) {
  return Library::instance().error();
}

Result ncclAllReduce(const void* from, void* to, std::size_t count, DataType type, RedOp op, Comm* comm, void* stream) {
  return call(comm, {.kind = Descriptor::all_reduce,
                     .from = from,
                     .to = to,
                     .count = count,
                     .type = type,
                     .detail = op,
                     .stream = stream});
}

Result ncclReduceScatter(const void* from, void* to, std::size_t received, DataType type, RedOp op, Comm* comm,
                         void* stream) {
  return call(comm, {.kind = Descriptor::reduce_scatter,
                     .from = from,
                     .to = to,
                     .count = received,
                     .type = type,
                     .detail = op,
                     .stream = stream});
}

Result ncclBroadcast(const void* from, void* to, std::size_t count, DataType type, int root, Comm* comm, void* stream) {
  return call(comm, {.kind = Descriptor::broadcast,
                     .from = from,
                     .to = to,
                     .count = count,
                     .type = type,
                     .detail = root,
                     .stream = stream});
}

Result ncclAllGather(const void* from, void* to, std::size_t sent, DataType type, Comm* comm, void* stream) {
  return call(comm,
              {.kind = Descriptor::all_gather, .from = from, .to = to, .count = sent, .type = type, .stream = stream});
}

Result ncclSend(const void* from, std::size_t count, DataType type, int peer, Comm* comm, void* stream) {
  return call(comm,
              {.kind = Descriptor::send, .from = from, .count = count, .type = type, .detail = peer, .stream = stream});
}

Result ncclRecv(void* to, std::size_t count, DataType type, int peer, Comm* comm, void* stream) {
  return call(comm, {.kind = Descriptor::send,
                     .to = to,
                     .count = count,
                     .type = type,
                     .detail = peer,
                     .receives = true,
                     .stream = stream});
}

Result ncclGroupStart() {
  ++Library::instance().group().depth;
  return qtrain::nccl::success;
}

Result ncclGroupEnd() {
  Group& group = Library::instance().group();
  if (group.depth == 0)
    return Library::instance().refuse(qtrain::nccl::invalid_usage, "ncclGroupEnd: not in a group call.");
  if (--group.depth > 0) return qtrain::nccl::success;
  std::map<std::shared_ptr<Communicator>, std::vector<Call>> all;
  for (auto& [ranks, c] : std::exchange(group.calls, {})) all[ranks].push_back(c);
  Result result = std::exchange(group.failed, qtrain::nccl::success);
  if (result != qtrain::nccl::success) return result;
  for (const auto& [ranks, calls] : all)
    if (const Result r = told(*ranks, ranks->accept(calls)); r != qtrain::nccl::success) result = r;
  return result;
}
}
