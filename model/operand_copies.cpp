#include "model/operand_copies.h"

#include "kernels/elementwise.h"

namespace qtrain {

void OperandCopies::keep(const Param& p, DType type) {
  ParamSpec spec{.name = p.spec.name, .shape = p.spec.shape, .dtype = type, .init = {}};
  spec.continues = p.spec.continues;
  copy_of_.emplace(&p, &copies_.declare(std::move(spec)));
  originals_.push_back(&p);
  if (p.trained()) trained_.push_back(&p);
}

Tensor OperandCopies::of(const Param& p) const {
  const auto found = copy_of_.find(&p);
  return found == copy_of_.end() ? p.value : found->second->value;
}

// Contiguous parameters whose copies are contiguous too are converted in one pass.
void OperandCopies::convert(Ctx& ctx, const std::vector<const Param*>& params) const {
  for (std::size_t i = 0; i < params.size();) {
    ConstTensor from = params[i]->value;
    Tensor to = of(*params[i]);
    for (++i; i < params.size() && are_contiguous(from, params[i]->value) && are_contiguous(to, of(*params[i])); ++i)
      from.shape = to.shape = {from.numel() + params[i]->value.numel()};
    ops::copy(ctx, {.y = store(to), .x = from});
  }
}

}  // namespace qtrain
