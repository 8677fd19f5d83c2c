#include "model/first_gradients.h"

#include <unordered_set>

namespace qtrain {
namespace {

std::unordered_set<const Param*> stored_parameters(const Parameters& params) {
  std::unordered_set<const Param*> found{&params.final_norm(), params.head().weight, params.head().bias};
  for (const LayerParams& layer : params.layers()) {
    found.insert(layer.vectors.begin(), layer.vectors.end());
    for (const LinearParams& l : layer.linears) found.insert({l.weight, l.bias});
  }
  return found;
}

}  // namespace

void store_gradients(LayerWeights& w) {
  for (NormWeight& v : w.vectors) v.grad = stored(v.grad);
  for (Projection& p : w.linears) store_gradients(p);
}

void store_gradients(Projection& head) {
  head.dweight = stored(head.dweight);
  head.dbias = stored(head.dbias);
}

void zero_added_gradients(Ctx& ctx, Parameters& params) {
  const std::unordered_set<const Param*> not_added = stored_parameters(params);
  std::vector<Tensor> added;
  for (const Param* p : params.trained())
    if (!not_added.contains(p)) added.push_back(p->grad);
  for (const Tensor& run : joined(added)) ctx.stream().fill(run.data, 0, run.bytes());
}

}  // namespace qtrain
