#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/cross_entropy.h"
#include "model/execution_plan.h"
#include "model/kv_cache.h"
#include "model/unit_access.h"

namespace qtrain {

/// One micro-batch on the device: ragged rows concatenated without padding. All i32. If ranks share tokens, cu_seqlens
/// and `longest` cover all ranks, everything else this rank only.
struct TokenBatch {
  ConstTensor tokens, positions;        ///< [T]
  ConstTensor cu_seqlens;               ///< [n+1]: attention segments
  ConstTensor target_rows, target_ids;  ///< [m]: rows of tokens that predict a target, and the targets
  std::int64_t longest = 0;             ///< 1 + the largest position
};

/// The load-balancing loss over all routers of a model: see ops::RouterBalance.
struct RouterLossRun {
  Sink sum = discard();    ///< f64 [1] on the device: the loss, without its coefficient; discard: not computed
  double coefficient = 0;  ///< its weight in the gradient
  ConstTensor scale = {};  ///< f64 [1] on the device, as in ForwardRun; empty: 1

  bool wanted() const { return sum.wanted(); }
};

/// Whether a training pass is the first of an optimizer step, so that gradients hold nothing yet, or a further one.
enum class GradientSum : std::uint8_t { first, further };

/// Noise on the embeddings: see ops::AddNoise.
struct EmbeddingNoise {
  ConstTensor keys, magnitudes;  ///< of each token, on the device; empty: no noise

  bool wanted() const { return keys.shape.rank > 0; }
};

/// The purpose of a forward pass, and where its result goes.
struct ForwardRun {
  Pass pass = Pass::evaluate;
  /// With `first`, this pass and `backward` store the gradients that model/first_gradients.h names.
  GradientSum gradients = GradientSum::further;
  ops::TargetLoss loss = {};
  Sink loss_sum = discard();  ///< f64 [1] on the device: the sum of the loss over all targets
  ConstTensor scale = {};     ///< f64 [1] on the device, for Pass::train: gradients are those of scale[0] * loss_sum
  ConstTensor dropout_seed = {};  ///< i64 [1] on the device, for Pass::train; absent: no dropout
  EmbeddingNoise noise = {};      ///< for Pass::train
  RouterLossRun router_loss = {};
};

/// Tokens to run against a cache: token t goes to cache row cache_rows[t] at positions[t]; logits are computed for the
/// tokens listed in `wanted`. With a paged cache a cache row is a row of the table `blocks` [rows, n]. All i32.
struct DecodeBatch {
  ConstTensor tokens, positions, cache_rows, wanted;
  ConstTensor blocks = {};
  std::int64_t longest = 0;
};

class Runner;

/// How a model will be run, which determines the memory it needs.
struct Execution {
  ExecutionChoice choice = {};
  std::vector<PlannedPass> passes = {};
  const Runner* base = nullptr;  ///< runs another adapter on the same base model, whose frozen weights are shared
};

/// Memory that an execution of a model takes, in bytes.
struct ExecutionMemory {
  ActivationBytes activations;
  std::size_t dense_copies = 0;    ///< dense copies of quantized weights
  std::size_t operand_copies = 0;  ///< 16-bit copies of float32 weights
  ops::GemmMemory gemm;            ///< operands that GEMMs convert on a GPU
};

/// A model with memory: allocates its parameters, owns the copies of weights and the activations, and queues
/// the work of every pass. Whatever needs memory takes a Runner.
class Runner {
 public:
  /// Allocates the memory. `model`, and the model of `execution.base`, must outlive this; a model gets memory once.
  /// Throws a usage error if the choice is contradictory.
  Runner(Transformer& model, Execution execution);
  /// Measures the memory without allocating it.
  static ExecutionMemory measure(const Transformer& model, const Execution& execution);

  Transformer& model() const { return model_; }
  const ExecutionPlan& plan() const { return plan_; }
  const WeightCopies& copies() const { return copies_; }
  const Arena& activations() const { return arenas_.device; }

  /// Random base-model weights, distributed as in transformers.
  void initialize_weights(Ctx& ctx, std::uint64_t seed);
  /// Initializes a new adapter's magnitudes with the L2 norms of the rows of W; call it after W was loaded.
  void initialize_magnitudes(Ctx& ctx);
  /// Updates the L2 norms of the rows of W + scale * B A; call it after the base weights or the adapter have changed.
  void measure_rows(Ctx& ctx);
  /// Call it after parameters were loaded or updated.
  void values_changed() { access_->values_changed(); }

  /// For a model that is sharded among ranks; `access` must outlive this.
  void set_access(UnitAccess& access) { access_ = &access; }
  /// For a model whose ranks share tokens (TransformerOptions::context); `exchange` must outlive this.
  void set_key_exchange(KeyExchange& exchange) { shared_.exchange = &exchange; }
  /// Refills tables that depend on the sequence length, for sequences of up to `longest` tokens. `forward` does so too,
  /// except while it is being captured.
  void prepare(Ctx& ctx, std::int64_t longest);

  /// Queues a forward pass; a batch without targets has loss 0. With Pass::train, it also leaves the state that
  /// `backward` starts from, and adds the head's weight gradients.
  void forward(Ctx& ctx, const TokenBatch& batch, const ForwardRun& run);
  /// Adds the gradient of every trained weight, or stores it (ForwardRun::gradients).
  void backward(Ctx& ctx, const TokenBatch& batch);
  /// Logits [wanted, vocab] in f32, valid until the next call; extends the cache.
  Tensor decode(Ctx& ctx, const DecodeBatch& batch, const KvCache& cache);
  /// Visits the units in the order of `forward` and, with Pass::train, then in that of `backward`, but without rows.
  /// Called on a rank that has no rows while others do.
  void follow(Ctx& ctx, Pass pass);

 private:
  /// A chunk of a batch's targets, and the index of its first.
  struct HeadChunkInput {
    ConstTensor rows, ids;
    std::int64_t first;
  };

  const ModelConfig& config() const { return model_.config(); }
  void for_each_adapted(Ctx& ctx, const std::function<void(const LinearParams&)>& act);
  Tensor dense_memory(Ctx& ctx);
  void begin(Ctx& ctx, Pass pass, const BatchSize& size);
  void enter_forward(Ctx& ctx, std::int64_t layer);
  void enter_backward(Ctx& ctx, std::int64_t layer);
  LayerWeights acquire(std::int64_t layer) const {
    LayerWeights w = copies_.acquire(model_.params().layer(layer), model_.dropout());
    const std::vector<LinearParams>& params = model_.params().layer(layer).linears;
    // Routers choose between experts whose numbers may be close.
    for (std::size_t i = 0; i < params.size(); ++i)
      if (params[i].kind == LinearKind::plain) {
        w.linears[i].fp8 = fp8_;
        w.linears[i].fp8_forward = model_.options().fp8_forward;
      }
    return w;
  }
  LayerRun layer_run(Ctx& ctx, std::int64_t layer, const LayerWeights& w);
  void run_layer(Ctx& ctx, std::int64_t layer);
  void backward_layer(Ctx& ctx, std::int64_t layer);
  double embedding_scale() const;
  const SharedKeys* shared_keys();
  void begin_balance(Ctx& ctx, const TokenBatch& batch);
  void finish_balance(Ctx& ctx, const RouterLossRun& run);
  void embed(Ctx& ctx, ConstTensor tokens);
  void add_noise(Ctx& ctx, const EmbeddingNoise& noise);
  void embed_grad(Ctx& ctx, ConstTensor tokens);
  void begin_outer(Ctx& ctx, Pass pass);
  bool recomputes_inputs(std::int64_t layer) const;
  std::int64_t first_of_group(std::int64_t layer) const { return layer / plan_.group() * plan_.group(); }
  Tensor group_input(std::int64_t group) const;
  void stash_input(Ctx& ctx, std::int64_t layer);
  void find_inputs(Ctx& ctx, std::int64_t layer);
  void normalize_head(Ctx& ctx, std::int64_t rows, ConstTensor which);
  void head_loss(Ctx& ctx, const TokenBatch& batch, const ForwardRun& run);
  void head_chunk(Ctx& ctx, const HeadChunkInput& chunk, const ForwardRun& run);
  void head_chunk_grad(Ctx& ctx, const HeadChunkInput& chunk, Projection head);
  void zero_head_gradients(Ctx& ctx);

  Transformer& model_;
  ExecutionPlan plan_;
  WeightCopies copies_;
  WholeModel whole_;
  UnitAccess* access_ = &whole_;
  ActivationArenas arenas_;
  Activations act_;
  std::optional<Fp8Recipe> fp8_;           ///< of the current pass
  std::unique_ptr<InputOffload> offload_;  ///< with BlockInputs::host
  std::vector<std::int64_t> rope_states_;  ///< rope_state of each filled rotary table
  TokenContext tokens_;
  SharedKeys shared_;
  GradientSum gradients_ = GradientSum::further;  ///< of the current training pass
};

}  // namespace qtrain
