#include "dist/gloo_collective.h"

#include <fmt/format.h>
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>

#include <cstring>
#include <vector>

#include "dist/gloo_context.h"
#include "dist/peer_sockets.h"

namespace qtrain {
namespace {

using std::chrono::milliseconds;

template <class T>
void add(void* to, const void* a, const void* b, std::size_t n) {
  const auto *x = static_cast<const T*>(a), *y = static_cast<const T*>(b);
  auto* out = static_cast<T*>(to);
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<T>(x[i] + y[i]);
}

template <class T>
void larger(void* to, const void* a, const void* b, std::size_t n) {
  const auto *x = static_cast<const T*>(a), *y = static_cast<const T*>(b);
  auto* out = static_cast<T*>(to);
  for (std::size_t i = 0; i < n; ++i) out[i] = y[i] > x[i] ? y[i] : x[i];
}

class GlooCollective : public Collective {
 public:
  GlooCollective(const RankPart& part, Store& store, milliseconds timeout)
      : part_(part),
        store_(store),
        timeout_(timeout),
        context_(std::make_shared<GlooContext>(GlooContext::Options{.rank = part.rank,
                                                                    .address = store.local_address(),
                                                                    .peers = connect_peers(store, part, timeout),
                                                                    .timeout = timeout})) {
    gloo::BarrierOptions all_are_connected(
        context_);  // otherwise a rank could finish and leave while others still connect
    gloo::barrier(all_are_connected);
  }

  int rank() const override { return context_->rank; }
  int size() const override { return context_->size; }

  void all_reduce(Ctx&, Tensor values, Reduction reduction) override {
    switch (values.dtype) {
      case DType::f64: return reduce<double>(values, reduction);
      case DType::f32: return reduce<float>(values, reduction);
      case DType::bf16: return reduce<Bf16>(values, reduction);
      case DType::f16: return reduce<F16>(values, reduction);
      case DType::i64: return reduce<std::int64_t>(values, reduction);
      default: check(false, "this type cannot be reduced over ranks");
    }
  }

  void broadcast(Ctx&, Tensor values, int root) override {
    gloo::BroadcastOptions options(context_);
    options.setTag(label_);
    options.setOutput(reinterpret_cast<char*>(values.data), values.bytes());
    options.setRoot(root);
    gloo::broadcast(options);
  }

  void all_gather(Ctx&, ConstTensor mine, Tensor all) override {
    gloo::AllgatherOptions options(context_);
    options.setTag(label_);
    const bool in_place = mine.data == all.data + static_cast<std::size_t>(rank()) * mine.bytes();
    if (!in_place) options.setInput(bytes_of(mine), mine.bytes());
    options.setOutput(reinterpret_cast<char*>(all.data), all.bytes());
    gloo::allgather(options);
  }

  void all_to_all(Ctx&, ConstTensor sent, Tensor received) override {
    gloo::AlltoallOptions options(context_);
    options.setTag(label_);
    options.setInput(bytes_of(sent), sent.bytes());
    options.setOutput(reinterpret_cast<char*>(received.data), received.bytes());
    gloo::alltoall(options);
  }

  void reduce_scatter(Ctx& ctx, ConstTensor sent, Tensor sum) override {
    received_.resize(sent.bytes());
    const Tensor rows{received_.data(), sent.dtype, {size(), sum.numel()}, {}};
    all_to_all(ctx, sent, rows);
    switch (sum.dtype) {
      case DType::f32: return add_rows<float>(rows, sum);
      case DType::bf16: return add_rows<Bf16>(rows, sum);
      case DType::f16: return add_rows<F16>(rows, sum);
      default: check(false, "this type cannot be reduce-scattered");
    }
  }

  void barrier(Ctx&) override {
    gloo::BarrierOptions options(context_);
    options.setTag(label_);
    gloo::barrier(options);
  }

  std::unique_ptr<Collective> part(int first, int size) override {
    check(first <= rank() && rank() < first + size && first + size <= this->size(), "this rank must be in the part");
    return connect({.first = first, .size = size, .rank = rank() - first});
  }
  std::unique_ptr<Collective> counterparts(int size) override {
    check(this->size() % size == 0, "counterparts need parts of equal size");
    return connect({.first = rank() % size, .size = this->size() / size, .rank = rank() / size, .stride = size});
  }
  void disconnect() override { context_->cut(); }
  void label_next(std::uint32_t label) override { label_ = label; }

 private:
  // gloo reads inputs through pointers that are not const.
  static char* bytes_of(ConstTensor t) { return reinterpret_cast<char*>(const_cast<std::byte*>(t.data)); }

  // `part` uses the rank numbers of this collective.
  std::unique_ptr<Collective> connect(RankPart part) {
    part.meeting = fmt::format("{}{}.{}/", part_.meeting, ++parts_, part.first);
    part.first = part_.first + part_.stride * part.first;
    part.stride *= part_.stride;
    return std::make_unique<GlooCollective>(part, store_, timeout_);
  }

  template <class T>
  static void add_rows(Tensor rows, Tensor sum) {
    std::memcpy(sum.data, rows.data, sum.bytes());
    for (std::int64_t r = 1; r < rows.shape[0]; ++r)
      add<T>(sum.data, sum.data, rows.slice(r, 1).data, static_cast<std::size_t>(sum.numel()));
  }

  template <class T>
  void reduce(Tensor values, Reduction reduction) {
    if (values.numel() == 0) return;
    gloo::AllreduceOptions options(context_);
    options.setTag(label_);
    options.setOutput(values.as<T>(), static_cast<std::size_t>(values.numel()));
    options.setReduceFunction(reduction == Reduction::sum ? add<T> : larger<T>);
    gloo::allreduce(options);
  }

  RankPart part_;
  Store& store_;
  milliseconds timeout_;
  int parts_ = 0;            ///< number of parts created from this
  std::uint32_t label_ = 0;  ///< tag of messages: a call only receives data with its own label
  std::vector<std::byte> received_;
  std::shared_ptr<GlooContext> context_;
};

}  // namespace

std::unique_ptr<Collective> connect_gloo(const RankPlace& place, Store& store, milliseconds timeout) {
  return std::make_unique<GlooCollective>(RankPart{.size = place.size, .rank = place.rank}, store, timeout);
}

}  // namespace qtrain
