#include "model/adapter_init/base_change.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <span>

#include "core/os/stop.h"
#include "core/rng.h"
#include "kernels/elementwise.h"

namespace qtrain {
namespace {

// Writes what this rank keeps of a factor.
void write_factor(Ctx& ctx, const Param& p, std::span<const float> values) {
  write_values(ctx, p, [&](std::int64_t first, Tensor chunk) {
    const ConstTensor from =
        view_of(values.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(chunk.numel())), chunk.shape);
    ops::run_cpu(ctx, ops::Copy{.y = store(chunk), .x = from});
  });
}

void copy_to(const Param& p, std::span<const float> values) {
  check(p.value.bytes() == values.size_bytes(), "initial factors have the shape of the trained ones");
  std::memcpy(p.value.data, values.data(), values.size_bytes());
}

std::vector<float> values_of(const Param& p) {
  const float* begin = p.value.as<float>();
  return {begin, begin + p.value.numel()};
}

}  // namespace

BaseChange::BaseChange(Ctx& ctx, Transformer& model, const Options& options)
    : ctx_(ctx), model_(model), options_(options) {
  if (!model.options().lora) return;
  init_ = model.options().lora->init;
  const bool changes = options.from == From::weights ? init_.reads_base() : init_.changes_base();
  if (!changes) return;
  const Parameters& params = model.params();
  const auto add = [&](const LinearParams& p) {
    if (p.a) layers_[p.module + ".weight"] = {.params = &p, .is_known = options.from == From::known};
  };
  for (const LayerParams& layer : params.layers())
    for (const LinearParams& p : layer.linears) add(p);
  add(params.head());
}

void BaseChange::read(ConstTensor dense) {
  memory_.resize(static_cast<std::size_t>(dense.numel()));
  ops::run_cpu(ctx_, ops::Copy{.y = store(view_of(std::span(memory_), dense.shape)), .x = dense});
}

ConstTensor BaseChange::values(const std::string& weight, ConstTensor dense) {
  const auto found = layers_.find(weight);
  if (found == layers_.end()) return dense;
  Layer& layer = found->second;
  read(dense);
  if (!layer.is_known) compute(layer, dense.shape);
  if (!init_.changes_base()) return dense;
  const Tensor w = view_of(std::span(memory_), dense.shape);
  subtract_factors(ctx_.pool(), w, known(*layer.params), layer.params->scale);
  return w;
}

LowRank BaseChange::known(const LinearParams& layer) const {
  const ParamStore& initial = model_.params().adapter().initial();
  return {.rank = layer.rank(),
          .a = values_of(*initial.find(layer.a->spec.name)),
          .b = values_of(*initial.find(layer.b->spec.name))};
}

// PEFT's LoftQ does not consider the scale of the adapter.
LowRank BaseChange::factors_of(const LinearParams& layer, Tensor w) {
  ThreadPool& pool = ctx_.pool();
  const std::int64_t r = layer.rank();
  switch (init_.kind) {
    case LoraInit::Kind::olora: return orthogonal_factors(pool, w, r);
    case LoraInit::Kind::loftq: return principal_factors(pool, lost_to_codes(layer, w), {.rank = r});
    default: break;
  }
  if (!init_.iterations) return principal_factors(pool, w, {.rank = r, .scale = layer.scale});
  return sampled_factors(pool, w,
                         {.rank = r,
                          .scale = layer.scale,
                          .iterations = *init_.iterations,
                          .seed = options_.seed,
                          .stream = stream_of(layer.a->spec.name)});
}

void BaseChange::compute(Layer& layer, const Shape& shape) {
  throw_if_stopped();
  layer.is_known = true;
  const LinearParams& p = *layer.params;
  if (init_.kind == LoraInit::Kind::loftq && !p.quantized) return;
  const LowRank factors = factors_of(p, view_of(std::span(memory_), shape));
  write_factor(ctx_, *p.a, factors.a);
  write_factor(ctx_, *p.b, factors.b);
  if (init_.changes_base()) {
    ParamStore& initial = model_.params().adapter().initial();
    copy_to(*initial.find(p.a->spec.name), factors.a);
    copy_to(*initial.find(p.b->spec.name), factors.b);
  }
  ++computed_;
}

// W minus what its quantized form expands to, computed on the host in either case.
Tensor BaseChange::lost_to_codes(const LinearParams& layer, Tensor w) {
  HostContext host(ctx_);
  ParamStore codes("a quantized weight");
  const QuantizedLinear quantized(codes, layer.quantized->name(), w.shape, *model_.options().quantization);
  codes.allocate();
  quantized.quantize(host.get(), host.get(), {w, layer.quantized->name()});
  std::vector<float> expanded(memory_.size());
  quantized.expand(host.get(), view_of(std::span(expanded), w.shape));
  std::ranges::transform(memory_, expanded, memory_.begin(), std::minus{});
  return w;
}

}  // namespace qtrain
