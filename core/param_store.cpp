#include "core/param_store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/rng.h"
#include "core/transfer.h"

namespace qtrain {
namespace {

struct RandomPart {
  const ParamSpec& spec;
  std::uint64_t seed;
  std::int64_t first;  // index of the first element; a multiple of 4
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

bool ParamStore::is_divided(const Param& p) const {
  return p.trained() ? sharding_.divides_trained() : sharding_.divides_weights();
}

// Allocates a parameter that is not sharded.
void ParamStore::take(Param& p) {
  if (p.is_part) {
    p.kept.value = p.own.value = values_.take(p.spec.dtype, p.own.value.shape);
    return;
  }
  const auto from = [&](Arena& arena, DType dtype) {
    return p.spec.continues ? arena.extend(dtype, p.spec.shape) : arena.take(dtype, p.spec.shape);
  };
  p.value = from(values_, p.spec.dtype);
  if (p.trained()) p.grad = from(grads_, p.spec.grad_dtype.value_or(p.spec.dtype));
  p.kept = p.own = {.begin = 0, .value = p.value, .grad = p.grad};
}

Param& ParamStore::add(ParamSpec spec) {
  check(!values_.committed() && !divided_, "parameters must be declared before the store is allocated");
  check(!by_name_.contains(spec.name), "a parameter must be declared only once");
  Param& p = params_.emplace_back();
  p.spec = std::move(spec);
  p.unit = unit_;
  p.value = {nullptr, p.spec.dtype, p.spec.shape, values_.device()};
  by_name_.emplace(p.spec.name, &p);
  return p;
}

Param& ParamStore::declare(ParamSpec spec) {
  Param& p = add(std::move(spec));
  if (!is_divided(p)) take(p);
  return p;
}

Param& ParamStore::declare_part(ParamSpec spec, ElementRange part) {
  Param& p = add(std::move(spec));
  p.is_part = true;
  p.kept.begin = p.own.begin = part.begin;
  p.own.value.shape = {part.count};
  take(p);
  return p;
}

void ParamStore::divide() {
  if (divided_) return;
  divided_ = true;
  for (Param& p : params_) {
    if (!is_divided(p)) continue;
    ShardGroup key{.unit = p.unit, .dtype = p.spec.dtype};
    if (p.trained()) key.grad_dtype = p.spec.grad_dtype.value_or(p.spec.dtype);
    const bool whole =
        p.spec.file_order || p.spec.cut == Cut::never || (sharding_.cut && sharding_.cut(p.spec) == Cut::never);
    if (p.trained() && whole) key.cut = Cut::never;
    auto group = std::ranges::find_if(groups_, [&](const ShardGroup& g) {
      return g.unit == key.unit && g.cut == key.cut && g.dtype == key.dtype && g.grad_dtype == key.grad_dtype;
    });
    if (group == groups_.end()) group = groups_.insert(groups_.end(), std::move(key));
    group->params.push_back(&p);
  }
  std::ranges::stable_sort(groups_, {}, &ShardGroup::unit);
  for (ShardGroup& group : groups_) divide_evenly(group, sharding_.ranks);
  take_groups();
}

std::span<const ShardGroup> ParamStore::groups_of(int unit) const {
  const auto begin = std::ranges::lower_bound(groups_, unit, {}, &ShardGroup::unit);
  return {begin, std::ranges::upper_bound(groups_, unit, {}, &ShardGroup::unit)};
}

// Allocates what this rank keeps at all times, and the memory that units share.
void ParamStore::take_groups() {
  const Sharding& s = sharding_;
  for (ShardGroup& g : groups_) {
    const std::int64_t begin = g.row_begin(s.rank), own = g.row_size(s.rank);
    if (s.divides_weights()) {
      g.own_values = (s.on_host ? on_host_ : values_).take(g.dtype, {own});
    } else {
      g.values = values_.take(g.dtype, {g.elements()});
      g.own_values = g.values.slice(begin, own);
    }
    if (!g.trained()) continue;
    if (!s.divides_gradients()) g.grads = grads_.take(*g.grad_dtype, {g.elements()});
    g.own_grads =
        s.divides_gradients() || s.separate_sums ? grads_.take(*g.grad_dtype, {own}) : g.grads.slice(begin, own);
  }
  take_gathered();
  for (const ShardGroup& g : groups_) find_parts(g);
}

// Ranks exchange whole rows, including the padding between parameters.
void ParamStore::clear_padding() const {
  if (groups_.empty()) return;
  Stream stream(values_.device());
  for (const ShardGroup& g : groups_) {
    const Tensor& stays = sharding_.divides_weights() ? g.own_values : g.values;
    if (stays.device.kind == DeviceKind::cpu)
      std::memset(stays.data, 0, stays.bytes());
    else
      stream.fill(stays.data, 0, stays.bytes());
  }
  stream.synchronize();
}

// Blocks that take turns in a buffer start at the same offset.
void ParamStore::take_gathered() {
  const Sharding& s = sharding_;
  if (!s.divides_gradients()) return;
  for (int buffer = 0; buffer <= s.buffers; ++buffer) {
    const std::size_t begin = gathered_.used();
    std::size_t end = begin;
    int unit = -1;
    for (ShardGroup& g : groups_) {
      if (buffer_of(g.unit, s.buffers) != buffer) continue;
      if (g.unit != std::exchange(unit, g.unit)) gathered_.rewind(begin);
      const Shape all{g.elements()};
      if (s.divides_weights()) g.values = gathered_.take(g.dtype, all);
      if (g.trained()) g.grads = gathered_.take(*g.grad_dtype, all);
      end = std::max(end, gathered_.used());
    }
    gathered_.rewind(end);
  }
}

// Sets the views of the group's parameters.
void ParamStore::find_parts(const ShardGroup& g) {
  const std::int64_t first = g.row_begin(sharding_.rank), last = g.row_begin(sharding_.rank + 1);
  for (std::size_t i = 0; i < g.params.size(); ++i) {
    Param& p = *g.params[i];
    const std::int64_t n = p.spec.shape.numel(), at = g.begins[i];
    const std::int64_t begin = std::clamp(first - at, std::int64_t{0}, n), end = std::clamp(last - at, begin, n);
    const bool whole = end - begin == n;
    const auto part = [&](const Tensor& row) {
      const Tensor flat = begin == end ? row.slice(0, 0) : row.slice(at + begin - first, end - begin);
      return whole ? flat.reshaped(p.spec.shape) : flat;
    };
    p.value = g.values.slice(at, n).reshaped(p.spec.shape);
    p.own = {.begin = begin, .value = part(g.own_values)};
    if (p.trained()) {
      p.grad = g.grads.slice(at, n).reshaped(p.spec.shape);
      p.own.grad = part(g.own_grads);
    }
    p.kept = sharding_.divides_weights() ? p.own : ParamPart{.begin = 0, .value = p.value, .grad = p.grad};
  }
}

void ParamStore::allocate() {
  divide();
  for (Arena* arena : {&values_, &grads_, &gathered_, &on_host_}) arena->commit();
  for (Param& p : params_)
    if (!is_divided(p)) take(p);
  take_groups();
  clear_padding();
  for (const Arena* arena : {&values_, &grads_, &gathered_, &on_host_})
    check(arena->used() == arena->planned(), "a store uses a different amount of memory than was planned");
}

void ParamStore::share(const ParamStore& of) {
  for (Param& p : params_) {
    const Param* from = of.find(p.spec.name);
    check(from && !p.trained() && from->spec.shape == p.spec.shape && from->spec.dtype == p.spec.dtype,
          "a shared parameter has a different shape or dtype, or is trained");
    p.value = from->value;
    p.kept = from->kept;
    p.own = from->own;
  }
}

void ParamStore::initialize(Ctx& ctx, std::uint64_t seed) {
  for (const Param& p : params_) {
    const Tensor& kept = p.kept.value;
    if (kept.numel() == 0) continue;
    if (p.spec.init.kind == Init::Kind::zeros) {
      if (kept.device.kind == DeviceKind::cpu)
        std::memset(kept.data, 0, kept.bytes());
      else
        ctx.stream().fill(kept.data, 0, kept.bytes());
      continue;
    }
    write_values(ctx, p, [&](std::int64_t first, Tensor part) {
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
    if (p.trained() && !is_divided(p)) grads.push_back(p.grad);
  for (const ShardGroup& g : groups_) {
    if (!g.trained()) continue;
    if (!sharding_.divides_gradients()) grads.push_back(g.grads);
    if (sharding_.divides_gradients() || sharding_.separate_sums) grads.push_back(g.own_grads);
  }
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

void write_values(Ctx& ctx, const Param& p, ElementRange range,
                  const std::function<void(std::int64_t first, Tensor chunk)>& make) {
  const std::int64_t begin = std::max(range.begin, p.kept.begin);
  const std::int64_t end = std::min(range.begin + range.count, p.kept.end());
  if (begin >= end) return;
  const Tensor flat = p.kept.value.reshaped({p.kept.count()}).slice(begin - p.kept.begin, end - begin);
  write_chunks(ctx, flat, [&](std::int64_t first, Tensor chunk) { make(begin + first, chunk); });
}

void write_values(Ctx& ctx, const Param& p, const std::function<void(std::int64_t first, Tensor chunk)>& make) {
  write_values(ctx, p, {0, p.spec.shape.numel()}, make);
}

}  // namespace qtrain
