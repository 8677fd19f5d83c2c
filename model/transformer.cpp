#include "model/transformer.h"

#include "kernels/elementwise.h"
#include "model/families/family.h"

namespace qtrain {
namespace {

void keep_copies(WeightCopies& copies, const ModelParts& parts, const ExecutionChoice& choice) {
  if (choice.dense_copies == KeepCopies::yes) copies.keep_dense(parts.params, parts.options.dense_dtype);
  if (choice.operand_copies == KeepCopies::yes) copies.keep_operands(parts.params, parts.options.activation_dtype);
}

}  // namespace

Transformer::Transformer(Device device, TransformerOptions options)
    : options_(std::move(options)),
      device_(device),
      layers_(make_layers(options_.config)),
      params_(device, options_, layers_),
      copies_(device) {}

ExecutionMemory Transformer::measure(const ExecutionChoice& choice, const std::vector<PlannedPass>& passes) const {
  WeightCopies copies(device_);
  keep_copies(copies, parts(), choice);
  const ExecutionPlan plan(parts(), choice, passes);
  ActivationArenas measured(device_);
  return {.activations = plan.lay_out_all(measured),
          .dense_copies = copies.dense().values().planned(),
          .operand_copies = copies.operands().bytes(),
          .gemm = plan.gemm_memory(copies.operands())};
}

void Transformer::commit(const ExecutionChoice& choice, std::vector<PlannedPass> passes, const Parameters* base) {
  check(!runner_, "a model gets its memory once");
  plan_ = std::make_unique<const ExecutionPlan>(parts(), choice, std::move(passes));
  keep_copies(copies_, parts(), choice);
  params_.allocate(base);
  copies_.allocate();
  runner_ = std::make_unique<Runner>(parts(), copies_, *plan_);
}

void Transformer::for_each_adapted(Ctx& ctx, const std::function<void(const LinearParams&)>& act) {
  for (std::int64_t l = 0; l < config().layers; ++l) {
    runner_->enter(ctx, unit_of(l), l + 1 < config().layers ? unit_of(l + 1) : kOuterUnit);
    for (const LinearParams& p : params_.layer(l).linears)
      if (p.norm) act(p);
  }
  runner_->enter(ctx, kOuterUnit, UnitAccess::kNoUnit);
  if (params_.head().norm) act(params_.head());
}

void Transformer::measure_rows(Ctx& ctx) {
  if (params_.adapter().norms().all().empty()) return;
  const bool expands = !quantized().empty() && !copies_.has_dense();
  const Tensor dense = expands ? runner_->dense_memory(ctx) : Tensor{};
  for_each_adapted(ctx, [&](const LinearParams& p) {
    qtrain::measure_rows(ctx, copies_.acquire_exact(p, parts().dropout()), p.norm->value, dense);
  });
}

void Transformer::initialize_magnitudes(Ctx& ctx) {
  measure_rows(ctx);
  for_each_adapted(ctx, [&](const LinearParams& p) {
    const ParamPart& kept = p.magnitude->kept;
    if (kept.count() == 0) return;
    const Tensor norms = p.norm->value.slice(kept.begin, kept.count());
    if (kept.value.device.kind == norms.device.kind) return ops::copy(ctx, {.y = store(kept.value), .x = norms});
    check(kept.value.dtype == norms.dtype, "magnitudes on the host have the type of the norms");
    ctx.stream().copy(kept.value.data, norms.data, norms.bytes());
  });
  values_changed();
}

}  // namespace qtrain
