#include "kernels/embedding.h"
#include "kernels/rms_norm.h"
#include "model/stages.h"
#include "model/transformer.h"

namespace qtrain {
namespace {

constexpr std::span<const Stage> kDecodeBlock{kDecoderBlock<cached_attention_stage>};

}  // namespace

KvCache::KvCache(const Transformer& model, std::int64_t rows, std::int64_t capacity)
    : rows_(rows), capacity_(capacity), arena_("key/value cache", model.device()) {
  const ModelConfig& config = model.config();
  const DType dtype = model.options().activation_dtype;
  const Shape shape{rows, capacity, config.kv_heads, config.head_dim};
  for (int pass = 0; pass < 2; ++pass) {
    layers_.clear();
    for (std::int64_t l = 0; l < config.layers; ++l) {
      const Tensor keys = arena_.take(dtype, shape), values = arena_.take(dtype, shape);
      layers_.emplace_back(keys, values);
    }
    if (pass == 0) arena_.commit();
  }
}

Tensor Transformer::decode(Ctx& ctx, const DecodeBatch& batch, KvCache& cache) {
  begin(ctx, Pass::decode,
        {.tokens = batch.tokens.numel(), .positions = batch.longest, .targets = batch.wanted.numel()});
  TokenContext tokens{.positions = batch.positions, .cos = act_.cos, .sin = act_.sin, .cache_rows = batch.cache_rows};
  embed(ctx, batch.tokens);
  for (std::int64_t l = 0; l < config().layers; ++l) {
    tokens.key_cache = cache.keys(l);
    tokens.value_cache = cache.values(l);
    const BlockWeights w = acquire(l);
    BlockRun run = block_run(ctx, l, w, tokens);
    run_forward(kDecodeBlock, run);
  }
  const std::int64_t n = batch.wanted.numel();
  check(n <= act_.head.hidden.shape[0], "decode: more logits wanted than planned");
  const Tensor hidden = act_.head.hidden.slice(0, n), normed = act_.head.normed.slice(0, n);
  ops::gather_rows(ctx, {.y = hidden, .x = act_.final_hidden, .rows = batch.wanted});
  ops::rms_norm(ctx, {.y = normed,
                      .inv_rms = act_.head.inv_rms.slice(0, n),
                      .x = hidden,
                      .weight = final_norm_->value,
                      .eps = config().rms_norm_eps});
  const Tensor logits = act_.head.logits.slice(0, n);
  const Projection head = acquire_linear(head_);
  project(ctx, {.layers = {{head, logits}}, .lora_x = act_.head.lora_x, .x = normed, .scratch = act_.scratch});
  return logits;
}

}  // namespace qtrain
