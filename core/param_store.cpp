#include "core/param_store.h"

#include <algorithm>
#include <cstring>

#include "core/rng.h"
#include "core/transfer.h"

namespace qtrain {
namespace {

struct RandomPart {
  const ParamSpec& spec;
  std::uint64_t seed;
  std::int64_t first;  // number of the first element; a multiple of 4
};

template <class T>
void fill_random(Ctx& ctx, Tensor part, const RandomPart& which) {
  T* out = part.as<T>();
  const std::int64_t n = part.numel();
  const std::uint64_t stream = stream_of(which.spec.drawn_as.empty() ? which.spec.name : which.spec.drawn_as);
  const Init init = which.spec.init;
  constexpr std::int64_t kChunk = 1 << 14;
  ctx.pool().run((n + kChunk - 1) / kChunk, [&](std::int64_t task, int) {
    for (std::int64_t i = task * kChunk; i < std::min(n, (task + 1) * kChunk); i += 4) {
      const auto words = philox(which.seed, stream, static_cast<std::uint64_t>((which.first + i) / 4));
      double v[4];
      for (std::size_t half = 0; half < 4; half += 2) {
        const auto pair = normal_pair(words[half], words[half + 1]);
        for (std::size_t j = 0; j < 2; ++j) {
          const double u = 2.0 * uniform(words[half + j]) - 1.0;
          v[half + j] = init.scale * (init.kind == Init::Kind::normal ? pair[j] : u);
        }
      }
      for (std::int64_t j = 0; j < 4 && i + j < n; ++j) out[i + j] = static_cast<T>(v[j]);
    }
  });
}

}  // namespace

Param& ParamStore::declare(ParamSpec spec) {
  check(!values_.committed(), "parameters are declared before the store is allocated");
  check(!by_name_.contains(spec.name), "a parameter is declared once");
  params_.push_back({.spec = std::move(spec), .value = {}, .grad = {}});
  Param& p = params_.back();
  by_name_.emplace(p.spec.name, &p);
  p.value = values_.take(p.spec.dtype, p.spec.shape);
  if (p.trained()) p.grad = grads_.take(p.spec.grad_dtype.value_or(p.spec.dtype), p.spec.shape);
  return p;
}

void ParamStore::lay_out() {
  for (Param& p : params_) {
    p.value = values_.take(p.spec.dtype, p.spec.shape);
    if (p.trained()) p.grad = grads_.take(p.spec.grad_dtype.value_or(p.spec.dtype), p.spec.shape);
  }
}

void ParamStore::allocate() {
  values_.commit();
  grads_.commit();
  lay_out();
  for (const Arena* arena : {&values_, &grads_})
    check(arena->used() == arena->planned(), "a store uses other memory than was planned");
}

void ParamStore::initialize(Ctx& ctx, std::uint64_t seed) {
  for (const Param& p : params_) {
    if (p.spec.init.kind == Init::Kind::zeros) {
      if (p.value.device.kind == DeviceKind::cpu)
        std::memset(p.value.data, 0, p.value.bytes());
      else
        ctx.stream().fill(p.value.data, 0, p.value.bytes());
      continue;
    }
    write_chunks(ctx, p.value, [&](std::int64_t first, Tensor part) {
      dispatch_float(p.spec.dtype, [&]<class T>() {
        if (p.spec.init.kind == Init::Kind::ones)
          std::fill_n(part.as<T>(), part.numel(), T(1));
        else
          fill_random<T>(ctx, part, {p.spec, seed, first});
      });
    });
  }
}

void ParamStore::zero_grads(Ctx& ctx) {
  std::vector<Tensor> grads;
  for (const Param& p : params_)
    if (p.trained()) grads.push_back(p.grad);
  for (const Tensor& run : joined(grads)) ctx.stream().fill(run.data, 0, run.bytes());
}

Param* ParamStore::named(std::string_view name) const {
  const auto it = by_name_.find(std::string(name));
  return it == by_name_.end() ? nullptr : it->second;
}

std::int64_t ParamStore::elements() const {
  std::int64_t n = 0;
  for (const Param& p : params_) n += p.value.numel();
  return n;
}

std::int64_t ParamStore::trained_elements() const {
  std::int64_t n = 0;
  for (const Param& p : params_) n += p.trained() ? p.value.numel() : 0;
  return n;
}

}  // namespace qtrain
