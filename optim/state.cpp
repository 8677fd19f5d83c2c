#include "optim/state.h"

#include <algorithm>

#include "optim/optimizer.h"

namespace qtrain {
namespace {

constexpr std::int64_t kChunkElements = std::int64_t{1} << 22;  // a multiple of every unit

}  // namespace

// The first tensors of all parameters, then the second of all: what is contiguous can be updated as one.
OptimizerState::OptimizerState(const UpdateRule& rule, std::span<Param* const> params, const Place& place)
    : store_("optimizer", place.device, place.placement) {
  std::vector<std::vector<StateSpec>> specs;
  std::size_t tensors = 0;
  for (const Param* p : params) {
    groups_.push_back({.elements = p->spec.shape.numel(), .tensors = {}, .units = {}});
    specs.push_back(rule.state_of(p->spec));
    tensors = std::max(tensors, specs.back().size());
  }
  for (std::size_t i = 0; i < tensors; ++i)
    for (std::size_t p = 0; p < params.size(); ++p) {
      if (i >= specs[p].size()) continue;
      const StateSpec& s = specs[p][i];
      groups_[p].tensors.push_back(&store_.declare(
          {.name = s.name + "." + params[p]->spec.name, .shape = s.shape, .dtype = s.dtype, .init = {}}));
      groups_[p].units.push_back(s.unit);
    }
}

StateChunk OptimizerState::chunk_of(const Group& group, std::int64_t begin, std::int64_t count) {
  StateChunk chunk{.param = 0, .begin = begin, .count = count, .state = {}};
  for (std::size_t i = 0; i < group.tensors.size(); ++i) {
    const std::int64_t unit = group.units[i];
    const Tensor flat = group.tensors[i]->value.reshaped({group.tensors[i]->value.numel()});
    chunk.state.push_back(count == group.elements ? flat : flat.slice(begin / unit, (count + unit - 1) / unit));
  }
  return chunk;
}

std::vector<StateChunk> OptimizerState::chunks(Cut cut) const {
  std::vector<StateChunk> chunks;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const std::int64_t n = groups_[g].elements, max = cut == Cut::never ? n : kChunkElements;
    for (std::int64_t begin = 0; begin < n; begin += max) {
      chunks.push_back(chunk_of(groups_[g], begin, std::min(max, n - begin)));
      chunks.back().param = g;
    }
  }
  return chunks;
}

}  // namespace qtrain
