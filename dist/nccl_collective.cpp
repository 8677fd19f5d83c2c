#include "dist/nccl_collective.h"

#include <fmt/format.h>

#include <cstring>
#include <string>
#include <utility>

#include "dist/nccl_communicator.h"
#include "dist/queued_calls.h"

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
    default: fail(ErrorKind::internal, {.cause = "no " + std::string(name_of(d)) + " is reduced over ranks"});
  }
}

const std::string kMissed = "a rank has ended";  // which NCCL does not notice inside of a machine

bool on_host(ConstTensor t) {
  return t.device.kind == DeviceKind::cpu;
}

bool both_on_host(ConstTensor a, ConstTensor b) {
  check(on_host(a) == on_host(b), "a collective between a tensor of the host and one of a GPU");
  return on_host(a);
}

// The first rank makes it, the others learn it from the store.
nccl::UniqueId meeting_point(const NcclLibrary& library, const NcclOptions& options, Store& store) {
  constexpr const char* kKey = "nccl/id";
  nccl::UniqueId id{};
  if (options.place.rank == 0) {
    if (const nccl::Result r = library->get_unique_id(&id); r != nccl::success)
      throw std::runtime_error(std::string("ncclGetUniqueId: ") + library->get_error_string(r));
    store.set(kKey, {id.bytes, sizeof id.bytes});
    return id;
  }
  const auto value = store.get(kKey, options.timeout);
  if (!value || value->size() != sizeof id.bytes) throw std::runtime_error("rank 0 has not begun with NCCL");
  std::memcpy(id.bytes, value->data(), sizeof id.bytes);
  return id;
}

class NcclCollective : public Collective {
 public:
  NcclCollective(std::unique_ptr<Collective> host, const NcclOptions& options, const RankWatch& watch)
      : host_(std::move(host)),
        watch_(watch),
        communicator_(library_, {.id = meeting_point(library_, options, watch.store),
                                 .rank = options.place.rank,
                                 .size = options.place.size,
                                 .timeout = options.timeout}),
        queued_({.device = options.device,
                 .timeout = options.timeout,
                 .error = [this] { return watch_.watchdog.misses_rank() ? kMissed : communicator_.queued_error(); },
                 .give_up = [this] { communicator_.give_up(); },
                 .waits = [this](const std::string& call) { watch_.watchdog.wait_on_device(call); }}) {}

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
    queue(ctx, {"an exchange by NCCL", sent}, [&](const Functions& f, Comm* comm) {
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

  void barrier(Ctx& ctx) override { host().barrier(ctx); }

  std::unique_ptr<Collective> part(int /*first*/, int /*size*/) override {
    fail(ErrorKind::usage, {.cause = "the tokens of a row are shared among processors only, so far",
                            .remedy = "set context_parallel_size to 1"});
  }
  void label_next(std::uint32_t label) override { host_->label_next(label); }
  void give_up() override { communicator_.give_up(); }
  void disconnect() override {
    communicator_.give_up();
    host_->disconnect();
  }

 private:
  struct What {
    const char* name;
    ConstTensor tensor;
  };
  void queue(Ctx& ctx, const What& what, const NcclCommunicator::Act& act) {
    throw_if_given_up();
    if (what.tensor.numel() == 0) return;
    ctx.stream().check_after_waits([this] { throw_if_given_up(); });
    queued_.add(ctx.stream(), fmt::format("{} of {} {}", what.name, what.tensor.numel(), name_of(what.tensor.dtype)),
                [&] { communicator_.run(what.name, act); });
  }

  // What a call that was given up has left behind is not shared, nor agreed on.
  Collective& host() {
    throw_if_given_up();
    return *host_;
  }

  void throw_if_given_up() {
    const auto failure = queued_.failure();
    if (!failure) return;
    const std::string where =
        failure->why.empty() ? failure->call : fmt::format("{} ({})", failure->call, failure->why);
    fail_for_lost_rank(watch_, where, "it was not done in time");
  }

  std::unique_ptr<Collective> host_;
  RankWatch watch_;
  NcclLibrary library_;
  NcclCommunicator communicator_;
  QueuedCalls queued_;
};

}  // namespace

std::unique_ptr<Collective> connect_nccl(std::unique_ptr<Collective> host, const NcclOptions& options,
                                         const RankWatch& watch) {
  select(options.device);
  try {
    return std::make_unique<NcclCollective>(std::move(host), options, watch);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    fail(ErrorKind::peer,
         {.cause = std::string("the ranks cannot be connected by NCCL: ") + e.what(),
          .remedy = "start each rank with NCCL_DEBUG=WARN to see why; each has to have a GPU of its own"});
  }
}

}  // namespace qtrain
