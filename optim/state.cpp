#include "optim/state.h"

#include <algorithm>

#include "optim/optimizer.h"

namespace qtrain {
namespace {

constexpr std::int64_t kChunkElements = std::int64_t{1} << 22;  // a multiple of every unit

// Parameters on the host still have their gradient on the device where they are updated.
bool is_on_host(const Param& p) {
  return p.own.value.device.kind != p.own.grad.device.kind;
}

}  // namespace

// Declares the first tensor of every parameter, then the second of every parameter, so that contiguous parameters can
// be updated as one.
OptimizerState::OptimizerState(const UpdateRule& rule, std::span<Param* const> params, const Place& place)
    : store_("optimizer", place.device, place.placement) {
  std::vector<std::vector<StateSpec>> specs;
  std::size_t tensors = 0;
  for (std::size_t p = 0; p < params.size(); ++p) {
    const ParamPart& own = params[p]->own;
    groups_.push_back({.param = p, .begin = own.begin, .elements = own.count(), .tensors = {}, .units = {}});
    specs.push_back(rule.state_of(params[p]->spec));
    tensors = std::max(tensors, specs.back().size());
  }
  for (std::size_t i = 0; i < tensors; ++i)
    for (std::size_t g = 0; g < groups_.size(); ++g)
      if (i < specs[g].size()) declare(groups_[g], *params[groups_[g].param], specs[g][i]);
}

void OptimizerState::declare(Group& group, const Param& param, const StateSpec& s) {
  ParamSpec spec{.name = s.name + "." + param.spec.name, .shape = s.shape, .dtype = s.dtype, .init = {}};
  const bool whole = group.elements == param.spec.shape.numel();
  group.tensors.push_back(
      whole ? &store_.declare(std::move(spec))
            : &store_.declare_part(std::move(spec), {group.begin / s.unit, (group.elements + s.unit - 1) / s.unit}));
  group.units.push_back(s.unit);
}

StateChunk OptimizerState::chunk_of(const Group& group, std::int64_t begin, std::int64_t count) {
  StateChunk chunk{.param = group.param, .begin = group.begin + begin, .count = count, .state = {}};
  for (std::size_t i = 0; i < group.tensors.size(); ++i) {
    const std::int64_t unit = group.units[i];
    const Tensor& value = group.tensors[i]->own.value;
    const Tensor flat = value.reshaped({value.numel()});
    chunk.state.push_back(count == group.elements ? flat : flat.slice(begin / unit, (count + unit - 1) / unit));
  }
  return chunk;
}

std::vector<StateChunk> OptimizerState::whole() const {
  std::vector<StateChunk> chunks;
  for (const Group& group : groups_)
    if (group.elements > 0) chunks.push_back(chunk_of(group, 0, group.elements));
  return chunks;
}

std::vector<StateChunk> OptimizerState::chunks(std::span<Param* const> params, const UpdateRule& rule) const {
  std::vector<StateChunk> chunks;
  for (const Group& group : groups_) {
    const std::int64_t n = group.elements;
    const std::int64_t max = rule.cut(params[group.param]->spec) == Cut::never ? n : kChunkElements;
    const bool with_value = is_on_host(*params[group.param]);
    for (std::int64_t begin = 0; begin < n; begin += max) {
      chunks.push_back(chunk_of(group, begin, std::min(max, n - begin)));
      if (with_value) chunks.back().value = params[group.param]->own.values(begin, chunks.back().count);
    }
  }
  return chunks;
}

bool OptimizerState::has_values_on_host(std::span<Param* const> params) {
  return std::ranges::any_of(params, [](const Param* p) { return is_on_host(*p); });
}

}  // namespace qtrain
