#include "dist/nccl_collective.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "dist/nccl_session.h"

namespace qtrain {
namespace {

using nccl::Comm;
using nccl::Functions;

nccl::DataType reduced_type(DType d) {
  switch (d) {
    case DType::f64: return nccl::f64;
    case DType::f32: return nccl::f32;
    case DType::f16: return nccl::f16;
    case DType::bf16: return nccl::bf16;
    case DType::i64: return nccl::i64;
    default: fail(ErrorKind::internal, {.cause = std::string(name_of(d)) + " cannot be reduced over ranks"});
  }
}

bool on_host(ConstTensor t) {
  return t.device.kind == DeviceKind::cpu;
}

bool both_on_host(ConstTensor a, ConstTensor b) {
  check(on_host(a) == on_host(b), "both tensors of a collective must be on the host or on a GPU");
  return on_host(a);
}

/// Every `stride`-th rank of a run from `first` on, and the prefix of their keys in the store.
struct Members {
  int first = 0, stride = 1;
  std::string meeting = "nccl/";
};

// Waits for a value in the store. Returns nothing if it does not arrive in time or a rank has ended.
std::optional<std::string> awaited(const NcclSession& session, const std::string& key) {
  constexpr std::chrono::milliseconds kSlice{500};
  const auto end = std::chrono::steady_clock::now() + session.options().timeout;
  std::optional<std::string> value;
  while (!value && !session.watch().watchdog.misses_rank() && std::chrono::steady_clock::now() < end)
    value = session.watch().store.get(key, kSlice);
  return value;
}

// The first rank creates the id, and the others get it from the store. A part has its own communicator instead of
// splitting that of all ranks, so that ranks outside the part need not be there.
nccl::UniqueId meeting_point(const NcclSession& session, const Members& members, int rank) {
  const std::string key = members.meeting + "id";
  nccl::UniqueId id{};
  if (rank == 0) {
    if (const nccl::Result r = session.library()->get_unique_id(&id); r != nccl::success)
      throw std::runtime_error(std::string("ncclGetUniqueId: ") + session.library()->get_error_string(r));
    session.watch().store.set(key, {id.bytes, sizeof id.bytes});
    return id;
  }
  const auto value = awaited(session, key);
  if (!value || value->size() != sizeof id.bytes)
    throw NcclWaitEnded(fmt::format("rank {} has not started NCCL", members.first));
  std::memcpy(id.bytes, value->data(), sizeof id.bytes);
  return id;
}

class NcclCollective : public Collective {
 public:
  NcclCollective(std::unique_ptr<Collective> host, std::shared_ptr<NcclSession> session, Members members)
      : host_(std::move(host)),
        session_(std::move(session)),
        members_(std::move(members)),
        communicator_(session_->library(),
                      {.id = meeting_point(*session_, members_, host_->rank()),
                       .rank = host_->rank(),
                       .size = host_->size(),
                       .timeout = session_->options().timeout,
                       .misses_rank = [this] { return session_->watch().watchdog.misses_rank(); }}) {
    session_->add(communicator_);
  }
  ~NcclCollective() override {
    if (std::uncaught_exceptions() > 0) session_->end();
    session_->remove(communicator_);
  }
  NcclCollective(const NcclCollective&) = delete;
  NcclCollective& operator=(const NcclCollective&) = delete;

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }

  void all_reduce(Ctx& ctx, Tensor values, Reduction reduction) override {
    if (on_host(values)) return host().all_reduce(ctx, values, reduction);
    const nccl::RedOp op = reduction == Reduction::sum ? nccl::sum : nccl::max;
    queue(ctx, {"ncclAllReduce", values}, [&](const Functions& f, Comm* comm) {
      return f.all_reduce(values.data, values.data, static_cast<std::size_t>(values.numel()),
                          reduced_type(values.dtype), op, comm, ctx.stream().handle());
    });
  }

  void broadcast(Ctx& ctx, Tensor values, int root) override {
    if (on_host(values)) return host().broadcast(ctx, values, root);
    queue(ctx, {"ncclBroadcast", values}, [&](const Functions& f, Comm* comm) {
      return f.broadcast(values.data, values.data, values.bytes(), nccl::u8, root, comm, ctx.stream().handle());
    });
  }

  void all_gather(Ctx& ctx, ConstTensor mine, Tensor all) override {
    if (both_on_host(mine, all)) return host().all_gather(ctx, mine, all);
    queue(ctx, {"ncclAllGather", mine}, [&](const Functions& f, Comm* comm) {
      return f.all_gather(mine.data, all.data, mine.bytes(), nccl::u8, comm, ctx.stream().handle());
    });
  }

  void all_to_all(Ctx& ctx, ConstTensor sent, Tensor received) override {
    if (both_on_host(sent, received)) return host().all_to_all(ctx, sent, received);
    const std::size_t row = sent.bytes() / static_cast<std::size_t>(size());
    queue(ctx, {"an NCCL exchange", sent}, [&](const Functions& f, Comm* comm) {
      nccl::Result first = f.group_start();
      const auto note = [&](nccl::Result r) { first = first == nccl::success ? r : first; };
      for (int r = 0; r < size(); ++r) {
        const std::size_t at = row * static_cast<std::size_t>(r);
        note(f.send(sent.data + at, row, nccl::u8, r, comm, ctx.stream().handle()));
        note(f.recv(received.data + at, row, nccl::u8, r, comm, ctx.stream().handle()));
      }
      const nccl::Result end = f.group_end();
      return first == nccl::success || first == nccl::in_progress ? end : first;
    });
  }

  void reduce_scatter(Ctx& ctx, ConstTensor sent, Tensor sum) override {
    if (both_on_host(sent, sum)) return host().reduce_scatter(ctx, sent, sum);
    queue(ctx, {"ncclReduceScatter", sent}, [&](const Functions& f, Comm* comm) {
      return f.reduce_scatter(sent.data, sum.data, static_cast<std::size_t>(sum.numel()), reduced_type(sum.dtype),
                              nccl::sum, comm, ctx.stream().handle());
    });
  }

  void barrier(Ctx& ctx) override { host().barrier(ctx); }

  std::unique_ptr<Collective> part(int first, int size) override;
  std::unique_ptr<Collective> counterparts(int size) override;
  void connect_all();
  void label_next(std::uint32_t label) override { host_->label_next(label); }
  void give_up() override { session_->end(); }
  void disconnect() override {
    host_->disconnect();  // first, so that ranks cannot agree on the results of aborted calls
    session_->end();
  }

 private:
  struct What {
    const char* name;
    ConstTensor tensor;
  };
  void queue(Ctx& ctx, const What& what, const NcclCommunicator::Act& act) {
    session_->throw_if_given_up();
    if (what.tensor.numel() == 0) return;
    const std::string text = fmt::format("{} of {} {}", what.name, what.tensor.numel(), name_of(what.tensor.dtype));
    session_->queue(ctx, {what.name, text, communicator_}, act);
  }

  // Members of the next collective that is split off from this one: every `stride`-th rank from `first` on.
  Members next_members(int first, int stride) {
    return {.first = members_.first + members_.stride * first,
            .stride = members_.stride * stride,
            .meeting = fmt::format("{}{}.{}/", members_.meeting, ++parts_, first)};
  }

  // After an aborted call, this throws, so that its results are neither shared nor agreed on.
  Collective& host() {
    session_->throw_if_given_up();
    return *host_;
  }

  std::unique_ptr<Collective> host_;
  std::shared_ptr<NcclSession> session_;
  Members members_;
  int parts_ = 0;  ///< number of parts created from this
  NcclCommunicator communicator_;
};

// NCCL allocates device memory for connections at the first call of each kind. This makes one call of each, before a
// run plans with the memory that is left.
void NcclCollective::connect_all() {
  constexpr std::int64_t kRow = 1024;
  const Device device = session_->options().device;
  const DeviceMemory memory(device, static_cast<std::size_t>(2 * size() * kRow) * sizeof(float));
  const Tensor both{memory.data(), DType::f32, {2 * size(), kRow}, device};
  const Tensor all = both.slice(0, size()), more = both.slice(size(), size()), row = more.slice(0, 1);
  Ctx ctx(device, MatmulPrecision::storage, 1);
  ctx.stream().fill(both.data, 0, both.bytes());
  all_to_all(ctx, all, more);
  all_reduce(ctx, all, Reduction::sum);
  all_gather(ctx, row, all);
  reduce_scatter(ctx, all, row);
  broadcast(ctx, row, 0);
  ctx.synchronize();
}

// Connects on the device of the session.
std::unique_ptr<Collective> connected(std::unique_ptr<Collective> host, const std::shared_ptr<NcclSession>& session,
                                      const Members& members) {
  select(session->options().device);
  auto ranks = std::make_unique<NcclCollective>(std::move(host), session, members);
  ranks->connect_all();
  return ranks;
}

// Tells the watchdog meanwhile that this rank is waiting, not computing.
template <class Connect>
std::unique_ptr<Collective> connected_or_failed(const RankWatch& watch, const Connect& connect) {
  constexpr const char* kWhere = "the start of NCCL";
  constexpr const char* kRemedy = "start each rank with NCCL_DEBUG=WARN to see why; each must have its own GPU";
  try {
    watch.watchdog.wait_on_device(kWhere);
    std::unique_ptr<Collective> ranks = connect();
    watch.watchdog.wait_on_device({});
    return ranks;
  } catch (const Error&) {
    throw;
  } catch (const NcclWaitEnded& e) {
    fail_for_lost_rank(watch, kWhere, e.what(), kRemedy);
  } catch (const std::exception& e) {
    fail(ErrorKind::peer,
         {.cause = std::string("the ranks cannot be connected by NCCL: ") + e.what(), .remedy = kRemedy});
  }
}

std::unique_ptr<Collective> NcclCollective::part(int first, int size) {
  auto ranks = host().part(first, size);
  return connected_or_failed(session_->watch(),
                             [&] { return connected(std::move(ranks), session_, next_members(first, 1)); });
}

std::unique_ptr<Collective> NcclCollective::counterparts(int size) {
  auto ranks = host().counterparts(size);
  return connected_or_failed(session_->watch(),
                             [&] { return connected(std::move(ranks), session_, next_members(rank() % size, size)); });
}

}  // namespace

std::unique_ptr<Collective> connect_nccl(std::unique_ptr<Collective> host, const NcclOptions& options,
                                         const RankWatch& watch) {
  return connected_or_failed(watch, [&] {
    ::setenv("NCCL_RUNTIME_CONNECT", "0", 0);  // connect rings and trees now, for the reason given at connect_all
    select(options.device);
    auto session = std::make_shared<NcclSession>(
        NcclSession::Options{.device = options.device, .timeout = options.timeout}, watch);
    return connected(std::move(host), session, {});
  });
}

}  // namespace qtrain
