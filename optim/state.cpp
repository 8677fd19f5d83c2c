#include "optim/state.h"

#include <algorithm>

#include "optim/optimizer.h"

namespace qtrain {
namespace {

constexpr std::int64_t kPieceElements = std::int64_t{1} << 22;  // a multiple of every unit

}  // namespace

OptimizerState::OptimizerState(const UpdateRule& rule, std::span<Param* const> params, const Place& place)
    : store_("optimizer", place.device, place.placement) {
  for (const Param* p : params) {
    Group group{.elements = p->spec.shape.numel(), .tensors = {}, .units = {}};
    for (const StateSpec& s : rule.state_of(p->spec)) {
      group.tensors.push_back(
          &store_.declare({.name = s.name + "." + p->spec.name, .shape = s.shape, .dtype = s.dtype, .init = {}}));
      group.units.push_back(s.unit);
    }
    groups_.push_back(std::move(group));
  }
}

StatePiece OptimizerState::piece_of(const Group& group, std::int64_t begin, std::int64_t count) {
  StatePiece piece{.param = 0, .begin = begin, .count = count, .state = {}};
  for (std::size_t i = 0; i < group.tensors.size(); ++i) {
    const std::int64_t unit = group.units[i];
    const Tensor flat = group.tensors[i]->value.reshaped({group.tensors[i]->value.numel()});
    piece.state.push_back(count == group.elements ? flat : flat.slice(begin / unit, (count + unit - 1) / unit));
  }
  return piece;
}

std::vector<StatePiece> OptimizerState::pieces(Cut cut) const {
  std::vector<StatePiece> pieces;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const std::int64_t n = groups_[g].elements, most = cut == Cut::never ? n : kPieceElements;
    for (std::int64_t begin = 0; begin < n; begin += most) {
      pieces.push_back(piece_of(groups_[g], begin, std::min(most, n - begin)));
      pieces.back().param = g;
    }
  }
  return pieces;
}

}  // namespace qtrain
