#include "model/transformer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/reduce.h"
#include "model/rope_tables.h"
#include "model/stages.h"

namespace qtrain {
namespace {

constexpr std::span<const Stage> kTrainBlock{kDecoderBlock<attention_stage>};

RecomputePolicy policy_named(const std::string& name) {
  const auto policy = recompute_policy(name);
  if (!policy)
    fail(ErrorKind::usage, {.cause = "unknown recompute policy \"" + name + "\"",
                            .remedy = "use none, selective, block or blocks:N (N from 2 on)"});
  return *policy;
}

// Lays out every pass in the same memory; the bytes of the largest.
ActivationBytes lay_out(ActivationArenas& arenas, const ActivationPlan& plan, std::vector<PlannedPass> passes) {
  std::int64_t positions = 0;
  for (const PlannedPass& p : passes) positions = std::max(positions, p.largest.positions);
  ActivationBytes most;
  for (PlannedPass& p : passes) {
    arenas.reset();
    p.largest.positions = positions;
    const Activations a = lay_out_activations(arenas, plan, p.pass, p.largest);
    if (const std::size_t used = arenas.device.used(); used > most.total)
      most = {.total = used, .head = a.head.bytes, .dense = a.dense ? a.dense.bytes() : 0};
  }
  most.pinned = arenas.pinned.planned();
  return most;
}

}  // namespace

Transformer::Transformer(Device device, TransformerOptions options)
    : options_(std::move(options)),
      weights_("weights", device),
      adapter_("adapter", device),
      copies_("dense copies", device),
      norms_("row norms", device),
      operands_(device),
      arenas_(device) {
  const ModelConfig& c = options_.config;
  const Init normal{Init::Kind::normal, c.initializer_range};
  const Shape table{c.vocab_size, c.hidden_size};
  embedding_.weight = declare_base(weight_spec("model.embed_tokens.weight", table, normal));
  embedding_.weight->spec.role = Role::embedding;
  if (adapts(kEmbeddingName)) declare_embedding_adapter(table);
  for (std::int64_t l = 0; l < c.layers; ++l) declare_block(l);
  final_norm_ = declare_vector("model.norm.weight", c.hidden_size, {Init::Kind::ones, 0});
  head_.weight = declare_head(normal);
  if (!has_tied_head()) head_.weight->spec.role = Role::head;
  head_.stream = static_cast<std::uint64_t>(c.layers) * std::size(kLinearNames);
  if (adapts(kHeadName)) declare_head_adapter(table);
  if (options_.lora) require_matches();
  recompute_ = recompute_plan({options_.recompute, options_.block_inputs});
}

RecomputePlan Transformer::recompute_plan(const RecomputeChoice& choice) const {
  const RecomputePolicy policy = policy_named(choice.policy);
  if (choice.inputs == BlockInputs::host && !policy.whole_blocks())
    fail(ErrorKind::usage, {.cause = "recompute policy " + choice.policy +
                                     " keeps more than the inputs of blocks on the "
                                     "device",
                            .remedy = "use block or blocks:N to keep those on the host"});
  RecomputePlan plan = plan_recompute(kTrainBlock, policy.drop, widest_training());
  plan.group = policy.group;
  return plan;
}

void Transformer::recompute_with(const RecomputeChoice& choice) {
  check(planned_.empty(), "a recompute policy is chosen before activations are planned");
  recompute_ = recompute_plan(choice);
  options_.recompute = choice.policy;
  options_.block_inputs = choice.inputs;
}

ActivationPlan Transformer::activation_plan() const {
  return {.config = &options_.config,
          .dtype = options_.activation_dtype,
          .lora_ranks = lora_ranks(),
          .lora_dropout = options_.lora ? options_.lora->dropout : 0,
          .widest_decomposed = widest_decomposed(),
          .head_decomposed = head_.magnitude != nullptr,
          .embedding_rank = embedding_.a ? embedding_.a->spec.shape[1] : 0,
          .head_rank = head_.a ? head_.a->spec.shape[0] : 0,
          .recompute = recompute_,
          .inputs = options_.block_inputs,
          .device = device().kind,
          .dense = {.elements = keeps_dense_copies() ? 0 : largest_quantized(), .dtype = options_.dense_dtype}};
}

void Transformer::plan(Pass pass, BatchSize largest) {
  check(!arenas_.device.committed(), "activations are planned before commit");
  most_positions_ = std::max(most_positions_, largest.positions);
  planned_.push_back({pass, largest});
  // The rotary tables of every pass have the rows of the longest, so each new plan is laid out with all earlier ones.
  lay_out(arenas_, activation_plan(), planned_);
}

ActivationBytes Transformer::activation_bytes(std::vector<PlannedPass> passes, const RecomputeChoice& choice) const {
  ActivationPlan plan = activation_plan();
  plan.recompute = recompute_plan(choice);
  plan.inputs = choice.inputs;
  ActivationArenas measured(device());
  return lay_out(measured, plan, std::move(passes));
}

void Transformer::commit() {
  weights_.allocate();
  adapter_.allocate();
  copies_.allocate();
  norms_.allocate();
  operands_.allocate();
  arenas_.commit();
  if (options_.block_inputs == BlockInputs::host) offload_ = std::make_unique<InputOffload>(device(), groups());
}

void Transformer::begin(Ctx& ctx, Pass pass, BatchSize size) {
  arenas_.reset();
  const std::int64_t longest = size.positions;
  size.positions = most_positions_;
  act_ = lay_out_activations(arenas_, activation_plan(), pass, size);
  prepare(ctx, longest);
}

void Transformer::prepare(Ctx& ctx, std::int64_t longest) {
  check(longest <= most_positions_, "a sequence is longer than planned");
  if (!act_.cos) return;  // before the first pass
  // Only dynamic NTK depends on the sequence; every other table is filled once.
  const std::int64_t depends = options_.config.rope.type == RopeConfig::Type::dynamic ? longest : most_positions_;
  if (rope_rows_ == depends) return;
  fill_rope_tables(ctx, rope_frequencies(options_.config, depends), {act_.cos, act_.sin});
  rope_rows_ = depends;
}

BlockRun Transformer::block_run(Ctx& ctx, std::int64_t layer, const BlockWeights& w, const TokenContext& tokens) {
  return {.ctx = ctx,
          .w = w,
          .tokens = tokens,
          .s = act_.layers[static_cast<std::size_t>(layer)],
          .d = act_.grads,
          .scratch = act_.scratch,
          .dense = act_.dense,
          .touched = {x, proj, mid, down, out},
          .eps = options_.config.rms_norm_eps,
          .window = options_.config.windows[static_cast<std::size_t>(layer)]};
}

void Transformer::forward(Ctx& ctx, const TokenBatch& batch, const ForwardRun& run) {
  begin(ctx, run.pass,
        {.tokens = batch.tokens.numel(), .positions = batch.longest, .targets = batch.target_rows.numel()});
  tokens_ = {.positions = batch.positions,
             .cu_seqlens = batch.cu_seqlens,
             .cos = act_.cos,
             .sin = act_.sin,
             .dropout_seed = run.pass == Pass::train ? run.dropout_seed : ConstTensor{}};
  embed(ctx, batch.tokens);
  for (std::int64_t l = 0; l < config().layers; ++l) {
    if (offload_ && run.pass == Pass::train) stash_input(ctx, l);
    run_block(ctx, l);
  }
  head_loss(ctx, batch, run);
}

void Transformer::embed(Ctx& ctx, ConstTensor tokens) {
  const Tensor y = act_.layers.front()[x];
  ops::embedding(ctx, {.y = y, .table = embedding_.weight->value, .tokens = tokens});
  if (!embedding_.a) return;
  ops::embedding(ctx, {.y = act_.lora_rows, .table = embedding_.a->value, .tokens = tokens});
  ops::gemm(ctx, {.c = accumulate(y),
                  .a = act_.lora_rows,
                  .b = operand(embedding_.b),
                  .transpose_b = ops::Transpose::yes,
                  .alpha = embedding_.scale});
}

void Transformer::embed_grad(Ctx& ctx, ConstTensor tokens) {
  const ConstTensor dy = act_.residual_grad;
  const std::int64_t padding = config().padding_row();
  ops::embedding_grad(ctx, {.dtable = embedding_.weight->grad_sink(), .dy = dy, .tokens = tokens, .padding = padding});
  if (!embedding_.a) return;
  ops::gemm(ctx, {.c = embedding_.b->grad_sink(),
                  .a = dy,
                  .b = act_.lora_rows,
                  .transpose_a = ops::Transpose::yes,
                  .alpha = embedding_.scale});
  const Tensor rows = act_.lora_rows;  // read for the last time: their gradient takes their place
  ops::gemm(ctx, {.c = store(rows), .a = dy, .b = operand(embedding_.b), .alpha = embedding_.scale});
  ops::embedding_grad(ctx, {.dtable = embedding_.a->grad_sink(), .dy = rows, .tokens = tokens, .padding = padding});
}

void Transformer::head_chunk(Ctx& ctx, const HeadChunkInput& chunk, const ForwardRun& run) {
  const HeadBuffers& h = act_.head;
  const std::int64_t count = chunk.rows.numel();
  const auto part = [&](const Tensor& t) { return t.slice(0, count); };
  const Tensor hidden = part(h.hidden), normed = part(h.normed), inv_rms = part(h.inv_rms), logits = part(h.logits),
               loss = part(h.loss);
  Projection head = acquire_linear(head_);
  head.lora.stream += static_cast<std::uint64_t>(chunk.first);  // each chunk its own mask
  ops::gather_rows(ctx, {.y = hidden, .x = act_.final_hidden, .rows = chunk.rows});
  ops::rms_norm(
      ctx, {.y = normed, .inv_rms = inv_rms, .x = hidden, .weight = final_norm_->value, .eps = config().rms_norm_eps});
  project(ctx, {.layers = {{head, logits}},
                .lora_x = h.lora_x,
                .x = normed,
                .scratch = act_.scratch,
                .dropout_seed = tokens_.dropout_seed});
  const auto gradient = run.pass == Pass::train ? ops::Gradient::in_place : ops::Gradient::none;
  ops::cross_entropy(ctx,
                     {.logits = logits, .loss = loss, .targets = chunk.ids, .gradient = gradient, .scale = run.scale});
  if (run.loss_sum.wanted()) ops::sum(ctx, {.out = accumulate(run.loss_sum.t), .x = loss});
  if (run.pass != Pass::train) return;
  const Tensor d_normed = part(h.d_normed), d_hidden = part(h.d_hidden);
  project_grad(ctx, {.layers = {{head, logits}},
                     .dx = store(d_normed),
                     .x = normed,
                     .lora_x = h.lora_x,
                     .scratch = act_.scratch,
                     .dropout_seed = tokens_.dropout_seed});
  ops::rms_norm_grad(ctx, {.dx = store(d_hidden),
                           .dweight = final_norm_->grad_sink(),
                           .dy = d_normed,
                           .x = hidden,
                           .weight = final_norm_->value,
                           .inv_rms = inv_rms});
  ops::scatter_rows(ctx, {.y = accumulate(act_.residual_grad), .x = d_hidden, .rows = chunk.rows});
}

void Transformer::head_loss(Ctx& ctx, const TokenBatch& batch, const ForwardRun& run) {
  const HeadBuffers& h = act_.head;
  if (run.loss_sum.mode == Sink::Mode::store) ops::fill(ctx, {.y = run.loss_sum.t, .value = 0});
  if (run.pass == Pass::train) ops::fill(ctx, {.y = act_.residual_grad, .value = 0});
  const std::int64_t n = batch.target_rows.numel(), rows = h.hidden.shape[0];
  for (std::int64_t begin = 0; begin < n; begin += rows) {
    const std::int64_t count = std::min(rows, n - begin);
    head_chunk(
        ctx,
        {.rows = batch.target_rows.slice(begin, count), .ids = batch.target_ids.slice(begin, count), .first = begin},
        run);
  }
}

void Transformer::run_block(Ctx& ctx, std::int64_t layer) {
  const BlockWeights w = acquire(layer);
  BlockRun run = block_run(ctx, layer, w, tokens_);
  run_forward(kTrainBlock, run);
}

std::int64_t Transformer::groups() const {
  return (config().layers + recompute_.group - 1) / recompute_.group;
}

Tensor Transformer::group_input(std::int64_t group) const {
  return act_.layers[static_cast<std::size_t>(group * recompute_.group)][x];
}

// Before a block of the forward pass: the input of its group leaves, and the block behind it may write into a buffer
// that another one leaves.
void Transformer::stash_input(Ctx& ctx, std::int64_t layer) {
  const std::int64_t size = recompute_.group, group = layer / size;
  if (layer % size == 0)
    offload_->store(ctx, group, group_input(group), act_.host_inputs[static_cast<std::size_t>(group)]);
  if (layer % size == size - 1) offload_->make_room(ctx, group + 1);
}

// Before the last block of a group in the backward pass: the inputs of the group from that of its first block. Those of
// the last group are still there.
void Transformer::find_inputs(Ctx& ctx, std::int64_t layer) {
  const std::int64_t size = recompute_.group, group = layer / size;
  const bool last = layer == config().layers - 1;
  if (layer % size != size - 1 && !last) return;
  if (offload_) {
    offload_->await(ctx, group);
    if (group > 0)
      offload_->fetch(ctx, group - 1, group_input(group - 1), act_.host_inputs[static_cast<std::size_t>(group - 1)]);
  }
  if (last) return;
  for (std::int64_t l = group * size; l < layer; ++l) run_block(ctx, l);
}

void Transformer::backward(Ctx& ctx, const TokenBatch& batch, const std::function<void(std::int64_t)>& on_layer_done) {
  for (std::int64_t l = config().layers; l-- > 0;) {
    find_inputs(ctx, l);
    const BlockWeights w = acquire(l);
    BlockRun run = block_run(ctx, l, w, tokens_);
    run_backward(kTrainBlock, recompute_, run);
    if (on_layer_done) on_layer_done(l);
  }
  embed_grad(ctx, batch.tokens);
}

}  // namespace qtrain
