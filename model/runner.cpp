#include "model/runner.h"

#include <algorithm>

#include "core/half.h"
#include "core/timeline.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/noise.h"
#include "kernels/reduce.h"
#include "kernels/rms_norm.h"
#include "kernels/router.h"
#include "model/first_gradients.h"
#include "model/rope_tables.h"

namespace qtrain {
namespace {

void keep_copies(WeightCopies& copies, const Transformer& model, const ExecutionChoice& choice) {
  if (choice.dense_copies == KeepCopies::yes) copies.keep_dense(model.params(), model.options().dense_dtype);
  if (choice.operand_copies == KeepCopies::yes) copies.keep_operands(model.params(), model.options().activation_dtype);
}

}  // namespace

Runner::Runner(Transformer& model, Execution execution)
    : model_(model),
      plan_(model, execution.choice, std::move(execution.passes)),
      copies_(model.device()),
      arenas_(model.device()) {
  keep_copies(copies_, model, plan_.choice());
  model_.params().allocate(execution.base ? &execution.base->model().params() : nullptr);
  copies_.allocate();
  plan_.lay_out_all(arenas_);
  arenas_.commit();
  if (plan_.offloads_inputs()) offload_ = std::make_unique<InputOffload>(model.device(), plan_.groups());
}

ExecutionMemory Runner::measure(const Transformer& model, const Execution& execution) {
  WeightCopies copies(model.device());
  keep_copies(copies, model, execution.choice);
  const ExecutionPlan plan(model, execution.choice, execution.passes);
  ActivationArenas measured(model.device());
  return {.activations = plan.lay_out_all(measured),
          .dense_copies = copies.dense().values().planned(),
          .operand_copies = copies.operands().bytes(),
          .gemm = plan.gemm_memory(copies.operands())};
}

void Runner::initialize_weights(Ctx& ctx, std::uint64_t seed) {
  model_.params().initialize(ctx, seed);
  values_changed();
}

void Runner::begin(Ctx& ctx, Pass pass, const BatchSize& size) {
  arenas_.reset();
  act_ = plan_.lay_out(arenas_, pass, size);
  // With one scale for the tokens of all sequences, the answers of a batch would depend on each other.
  fp8_ = pass == Pass::decode ? std::nullopt : model_.options().fp8;
  prepare(ctx, size.positions);
}

void Runner::prepare(Ctx& ctx, std::int64_t longest) {
  check(longest <= plan_.longest(), "a sequence is longer than planned");
  if (act_.rotary.empty()) return;  // before the first pass
  // Few tables depend on the sequence length; all others are filled once.
  constexpr std::int64_t kNotFilled = -1;
  rope_states_.resize(act_.rotary.size(), kNotFilled);
  for (std::size_t i = 0; i < act_.rotary.size(); ++i) {
    const RopeConfig& rope = config().ropes[i];
    const std::int64_t state = rope_state(rope, longest);
    if (rope_states_[i] == state) continue;
    fill_rope_tables(ctx, rope_frequencies(rope, config().head_dim, longest), {act_.rotary[i].cos, act_.rotary[i].sin});
    rope_states_[i] = state;
  }
}

// Memory for the dense form of one quantized weight.
Tensor Runner::dense_memory(Ctx& ctx) {
  if (!act_.dense) begin(ctx, plan_.passes().front().pass, plan_.passes().front().largest);
  return act_.dense;
}

void Runner::for_each_adapted(Ctx& ctx, const std::function<void(const LinearParams&)>& act) {
  for (std::int64_t l = 0; l < config().layers; ++l) {
    access_->enter(ctx, {.unit = unit_of(l), .next = l + 1 < config().layers ? unit_of(l + 1) : kOuterUnit});
    for (const LinearParams& p : model_.params().layer(l).linears)
      if (p.norm) act(p);
  }
  access_->enter(ctx, {.unit = kOuterUnit});
  if (model_.params().head().norm) act(model_.params().head());
}

void Runner::measure_rows(Ctx& ctx) {
  if (model_.params().adapter().norms().all().empty()) return;
  const bool expands = !model_.quantized().empty() && !copies_.has_dense();
  const Tensor dense = expands ? dense_memory(ctx) : Tensor{};
  for_each_adapted(ctx, [&](const LinearParams& p) {
    qtrain::measure_rows(ctx, copies_.acquire_exact(p, model_.dropout()), p.norm->value, dense);
  });
}

void Runner::initialize_magnitudes(Ctx& ctx) {
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

LayerRun Runner::layer_run(Ctx& ctx, std::int64_t layer, const LayerWeights& w) {
  const auto l = static_cast<std::size_t>(layer);
  return {.ctx = ctx,
          .w = w,
          .tokens = tokens_,
          .s = act_.layers[l],
          .d = act_.grads[l],
          .scratch = act_.scratch,
          .dense = act_.dense,
          .touched = model_.layers()[l].residual,
          .strides = act_.strides[l]};
}

// Embedding, final norm and head: their gradients accumulate from the head to the end of the backward pass.
void Runner::begin_outer(Ctx& ctx, Pass pass) {
  using enum UnitAccess::Gradients;
  access_->enter(ctx, {.unit = kOuterUnit, .next = unit_of(0), .gradients = pass == Pass::train ? yes : no});
}

void Runner::enter_forward(Ctx& ctx, std::int64_t layer) {
  const bool last = layer + 1 == config().layers;
  access_->enter(ctx, {.unit = unit_of(layer), .next = last ? UnitAccess::kNoUnit : unit_of(layer + 1)});
}

void Runner::enter_backward(Ctx& ctx, std::int64_t layer) {
  const std::int64_t before = layer - 1;
  int next = UnitAccess::kNoUnit;
  if (before >= 0) next = unit_of(recomputes_inputs(before) ? first_of_group(before) : before);
  access_->enter(ctx, {.unit = unit_of(layer), .next = next, .gradients = UnitAccess::Gradients::yes});
}

void Runner::run_layer(Ctx& ctx, std::int64_t layer) {
  enter_forward(ctx, layer);
  const timeline::Span span("forward of block", layer);
  const LayerWeights w = acquire(layer);
  LayerRun run = layer_run(ctx, layer, w);
  run_forward(model_.layers()[static_cast<std::size_t>(layer)], run);
}

void Runner::forward(Ctx& ctx, const TokenBatch& batch, const ForwardRun& run) {
  begin(ctx, run.pass,
        {.tokens = batch.tokens.numel(), .positions = batch.longest, .targets = batch.target_rows.numel()});
  gradients_ = run.gradients;
  tokens_ = {.positions = batch.positions,
             .cu_seqlens = batch.cu_seqlens,
             .rotary = act_.rotary,
             .dropout_seed = run.pass == Pass::train ? run.dropout_seed : ConstTensor{},
             .shared = shared_keys()};
  const bool balanced = run.router_loss.wanted() && config().sparse_layers() > 0;
  if (balanced) begin_balance(ctx, batch);
  begin_outer(ctx, run.pass);
  embed(ctx, batch.tokens);
  if (run.pass == Pass::train && run.noise.wanted()) add_noise(ctx, run.noise);
  for (std::int64_t l = 0; l < config().layers; ++l) {
    if (offload_ && run.pass == Pass::train) stash_input(ctx, l);
    run_layer(ctx, l);
  }
  if (balanced) finish_balance(ctx, run.router_loss);
  head_loss(ctx, batch, run);
}

// What attention needs for this batch if ranks share its tokens.
const SharedKeys* Runner::shared_keys() {
  const ContextShare& share = model_.options().context;
  if (!share.is_shared()) return nullptr;
  check(shared_.exchange, "ranks share tokens and do not exchange their keys");
  shared_ = {share, shared_.exchange, act_.gathered};
  return &shared_;
}

// The last boundary of the documents is the number of their tokens; later tokens are padding.
void Runner::begin_balance(Ctx& ctx, const TokenBatch& batch) {
  const RouterBuffers& b = act_.router;
  for (const Tensor& t : {b.counts, b.sums}) ops::fill(ctx, {.y = t, .value = 0});
  tokens_.balance = {.counts = accumulate(b.counts),
                     .sums = accumulate(b.sums),
                     .tokens = batch.cu_seqlens.slice(batch.cu_seqlens.numel() - 1, 1)};
}

void Runner::finish_balance(Ctx& ctx, const RouterLossRun& run) {
  const RouterBuffers& b = act_.router;
  RouterBalanceRun& balance = tokens_.balance;
  ops::router_balance(ctx, {.loss = run.sum,
                            .factor = b.factor,
                            .counts = b.counts,
                            .sums = b.sums,
                            .tokens = balance.tokens,
                            .layers = config().sparse_layers(),
                            .coefficient = run.coefficient,
                            .scale = run.scale});
  balance = {.factor = b.factor, .tokens = balance.tokens};
}

double Runner::embedding_scale() const {
  const double scale = config().embedding_scale;
  if (!config().rounds_embedding_scale) return scale;
  switch (model_.options().activation_dtype) {
    case DType::bf16: return static_cast<double>(static_cast<float>(Bf16(static_cast<float>(scale))));
    case DType::f16: return static_cast<double>(static_cast<float>(F16(static_cast<float>(scale))));
    default: return scale;
  }
}

void Runner::embed(Ctx& ctx, ConstTensor tokens) {
  const timeline::Span span("embedding");
  const LinearParams& e = model_.params().embedding();
  const Tensor y = act_.layers.front()[static_cast<std::size_t>(model_.layers().front().input)];
  const double scale = embedding_scale();
  ops::embedding(ctx, {.y = y, .table = e.weight->value, .tokens = tokens, .scale = scale});
  if (!e.a) return;
  ops::embedding(ctx, {.y = act_.lora_rows, .table = e.a->value, .tokens = tokens});
  ops::gemm(ctx, {.c = accumulate(y),
                  .a = act_.lora_rows,
                  .b = copies_.operand(e.b),
                  .transpose_b = ops::Transpose::yes,
                  .alpha = scale * e.scale});
}

// In transformers, noise is added to the result of the embedding module. Gemma scales within the module, Granite after
// it.
void Runner::add_noise(Ctx& ctx, const EmbeddingNoise& noise) {
  const Tensor y = act_.layers.front()[static_cast<std::size_t>(model_.layers().front().input)];
  const double scale = config().rounds_embedding_scale ? 1 : config().embedding_scale;
  ops::add_noise(ctx, {.y = y, .keys = noise.keys, .magnitudes = noise.magnitudes, .scale = scale});
}

void Runner::embed_grad(Ctx& ctx, ConstTensor tokens) {
  const timeline::Span span("gradient of the embedding");
  const LinearParams& e = model_.params().embedding();
  const ConstTensor dy = act_.residual_grad;
  const std::int64_t padding = config().padding_row();
  const double scale = embedding_scale();
  ops::embedding_grad(
      ctx, {.dtable = e.weight->grad_sink(), .dy = dy, .tokens = tokens, .padding = padding, .scale = scale});
  if (!e.a) return;
  ops::gemm(ctx, {.c = e.b->grad_sink(),
                  .a = dy,
                  .b = act_.lora_rows,
                  .transpose_a = ops::Transpose::yes,
                  .alpha = scale * e.scale});
  const Tensor rows = act_.lora_rows;  // its last use: the gradient overwrites it
  ops::gemm(ctx, {.c = store(rows), .a = dy, .b = copies_.operand(e.b), .alpha = scale * e.scale});
  ops::embedding_grad(ctx, {.dtable = e.a->grad_sink(), .dy = rows, .tokens = tokens, .padding = padding});
}

// Applies the final norm to the rows that go through the head.
void Runner::normalize_head(Ctx& ctx, std::int64_t rows, ConstTensor which) {
  const HeadBuffers& h = act_.head;
  ops::gather_rows(ctx, {.y = h.hidden.slice(0, rows), .x = act_.final_hidden, .rows = which});
  ops::rms_norm(ctx, {.y = h.normed.slice(0, rows),
                      .inv_rms = h.inv_rms.slice(0, rows),
                      .x = h.hidden.slice(0, rows),
                      .weight = model_.params().final_norm().value,
                      .eps = config().rms_norm_eps,
                      .weight_offset = config().norm_offset});
}

void Runner::head_chunk(Ctx& ctx, const HeadChunkInput& chunk, const ForwardRun& run) {
  const HeadBuffers& h = act_.head;
  const std::int64_t count = chunk.rows.numel();
  const Tensor logits = h.logits.slice(0, count), loss = h.loss.slice(0, count);
  Projection head = copies_.acquire(model_.params().head(), model_.dropout());
  head.lora.stream += static_cast<std::uint64_t>(chunk.first);  // a separate mask per chunk
  normalize_head(ctx, count, chunk.rows);
  project(ctx, {.layers = {{head, logits}},
                .lora_x = h.lora_x,
                .x = h.normed.slice(0, count),
                .scratch = act_.scratch,
                .dropout_seed = tokens_.dropout_seed});
  const bool train = run.pass == Pass::train;
  ops::cross_entropy(ctx, {.logits = logits,
                           .loss = loss,
                           .targets = chunk.ids,
                           .form = run.loss,
                           .gradient = train ? ops::Gradient::in_place : ops::Gradient::none,
                           .scale = run.scale,
                           .logit_scale = config().logit_scale,
                           .softcap = config().logit_softcap});
  if (run.loss_sum.wanted()) ops::sum(ctx, {.out = accumulate(run.loss_sum.t), .x = loss});
  if (train) head_chunk_grad(ctx, chunk, head);
}

void Runner::head_chunk_grad(Ctx& ctx, const HeadChunkInput& chunk, Projection head) {
  const HeadBuffers& h = act_.head;
  const bool stores = gradients_ == GradientSum::first && chunk.first == 0;
  Sink dnorm = model_.params().final_norm().grad_sink();
  if (stores) {
    store_gradients(head);
    dnorm = stored(dnorm);
  }
  const auto part = [&](const Tensor& t) { return t.slice(0, chunk.rows.numel()); };
  project_grad(ctx, {.layers = {{head, part(h.logits)}},
                     .dx = store(part(h.d_normed)),
                     .x = part(h.normed),
                     .lora_x = h.lora_x,
                     .scratch = act_.scratch,
                     .dropout_seed = tokens_.dropout_seed});
  ops::rms_norm_grad(ctx, {.dx = store(part(h.d_hidden)),
                           .dweight = dnorm,
                           .dy = part(h.d_normed),
                           .x = part(h.hidden),
                           .weight = model_.params().final_norm().value,
                           .inv_rms = part(h.inv_rms),
                           .weight_offset = config().norm_offset});
  ops::scatter_rows(ctx, {.y = accumulate(act_.residual_grad), .x = part(h.d_hidden), .rows = chunk.rows});
}

// For a pass without targets, in which no chunk stores them.
void Runner::zero_head_gradients(Ctx& ctx) {
  const Parameters& params = model_.params();
  const Param* const of_head[] = {params.head().weight, params.head().bias, &params.final_norm()};
  for (const Param* p : of_head)
    if (p && p->trained()) ctx.stream().fill(p->grad.data, 0, p->grad.bytes());
}

void Runner::head_loss(Ctx& ctx, const TokenBatch& batch, const ForwardRun& run) {
  const timeline::Span span("head");
  if (run.loss_sum.mode == Sink::Mode::store) ops::fill(ctx, {.y = run.loss_sum.t, .value = 0});
  if (run.pass == Pass::train) ops::fill(ctx, {.y = act_.residual_grad, .value = 0});
  const std::int64_t n = batch.target_rows.numel(), rows = act_.head.hidden.shape[0];
  if (run.pass == Pass::train && n == 0 && gradients_ == GradientSum::first) zero_head_gradients(ctx);
  for (std::int64_t begin = 0; begin < n; begin += rows) {
    const std::int64_t count = std::min(rows, n - begin);
    head_chunk(
        ctx,
        {.rows = batch.target_rows.slice(begin, count), .ids = batch.target_ids.slice(begin, count), .first = begin},
        run);
  }
}

Tensor Runner::group_input(std::int64_t group) const {
  const auto l = static_cast<std::size_t>(group * plan_.group());
  return act_.layers[l][static_cast<std::size_t>(model_.layers()[l].input)];
}

// Before a block of the forward pass: starts the copy of its group's input to the host, and waits for the buffer that
// the next block may write to.
void Runner::stash_input(Ctx& ctx, std::int64_t layer) {
  const std::int64_t size = plan_.group(), group = layer / size;
  if (layer % size == 0)
    offload_->store(ctx, group, group_input(group), act_.host_inputs[static_cast<std::size_t>(group)]);
  if (layer % size == size - 1) offload_->make_room(ctx, group + 1);
}

// Whether the backward pass of a block starts by recomputing the inputs of its group from the first block's: true for
// the last block of each group, except the last group, whose inputs are still in memory.
bool Runner::recomputes_inputs(std::int64_t layer) const {
  return layer % plan_.group() == plan_.group() - 1 && layer != config().layers - 1;
}

void Runner::find_inputs(Ctx& ctx, std::int64_t layer) {
  const bool last = layer == config().layers - 1;
  if (offload_ && (recomputes_inputs(layer) || last)) {
    const std::int64_t group = layer / plan_.group();
    offload_->await(ctx, group);
    if (group > 0)
      offload_->fetch(ctx, group - 1, group_input(group - 1), act_.host_inputs[static_cast<std::size_t>(group - 1)]);
  }
  if (!recomputes_inputs(layer)) return;
  for (std::int64_t l = first_of_group(layer); l < layer; ++l) run_layer(ctx, l);
}

void Runner::backward_layer(Ctx& ctx, std::int64_t layer) {
  const timeline::Span span("backward of block", layer);
  const auto l = static_cast<std::size_t>(layer);
  LayerWeights w = acquire(layer);
  if (gradients_ == GradientSum::first) store_gradients(w);
  LayerRun run = layer_run(ctx, layer, w);
  run_backward(model_.layers()[l], plan_.recompute(layer), run);
}

void Runner::backward(Ctx& ctx, const TokenBatch& batch) {
  for (std::int64_t l = config().layers; l-- > 0;) {
    find_inputs(ctx, l);
    enter_backward(ctx, l);
    backward_layer(ctx, l);
    access_->finish_gradients(ctx, unit_of(l));
  }
  embed_grad(ctx, batch.tokens);
  access_->finish_gradients(ctx, kOuterUnit);
}

void Runner::follow(Ctx& ctx, Pass pass) {
  begin_outer(ctx, pass);
  for (std::int64_t l = 0; l < config().layers; ++l) enter_forward(ctx, l);
  if (pass != Pass::train) return;
  for (std::int64_t l = config().layers; l-- > 0;) {
    if (recomputes_inputs(l))
      for (std::int64_t first = first_of_group(l); first < l; ++first) enter_forward(ctx, first);
    enter_backward(ctx, l);
    access_->finish_gradients(ctx, unit_of(l));
  }
  access_->finish_gradients(ctx, kOuterUnit);
}

Tensor Runner::decode(Ctx& ctx, const DecodeBatch& batch, const KvCache& cache) {
  begin(ctx, Pass::decode,
        {.tokens = batch.tokens.numel(), .positions = batch.longest, .targets = batch.wanted.numel()});
  tokens_ = {.positions = batch.positions,
             .rotary = act_.rotary,
             .cache_rows = batch.cache_rows,
             .cache_blocks = batch.blocks};
  begin_outer(ctx, Pass::decode);
  embed(ctx, batch.tokens);
  for (std::int64_t l = 0; l < config().layers; ++l) {
    tokens_.key_cache = cache.keys(l);
    tokens_.value_cache = cache.values(l);
    run_layer(ctx, l);
  }
  const std::int64_t n = batch.wanted.numel();
  check(n <= act_.head.hidden.shape[0], "decode: more logits wanted than planned");
  normalize_head(ctx, n, batch.wanted);
  const Tensor logits = act_.head.logits.slice(0, n);
  const Projection head = copies_.acquire(model_.params().head(), 0);
  project(ctx, {.layers = {{head, logits}},
                .lora_x = act_.head.lora_x,
                .x = act_.head.normed.slice(0, n),
                .scratch = act_.scratch});
  if (config().logit_scale != 1 || config().logit_softcap != 0)
    ops::cap_logits(ctx, {.y = logits, .x = logits, .scale = config().logit_scale, .softcap = config().logit_softcap});
  return logits;
}

}  // namespace qtrain
