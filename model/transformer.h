#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/param_store.h"
#include "kernels/gemm.h"
#include "model/activations.h"
#include "model/lora.h"
#include "model/model_config.h"
#include "model/operand_copies.h"
#include "model/quantized_linear.h"
#include "model/recompute.h"

namespace qtrain {

struct TransformerOptions {
  ModelConfig config;
  DType weight_dtype = DType::f32;   ///< of frozen weights
  DType trained_dtype = DType::f32;  ///< of trained ones (f64 with f64); norms and biases are f32, and so are gradients
  DType activation_dtype = DType::f32;
  Update base = Update::trained;  ///< frozen for adapter training and inference
  std::optional<LoraConfig> lora = {};
  Update adapter = Update::trained;
  std::string recompute = "none";  ///< see recompute_policy
  BlockInputs block_inputs = BlockInputs::device;
  std::optional<Quantization> quantization = {};  ///< of frozen linear layers in the blocks
  DType dense_dtype = DType::f32;                 ///< of quantized weights while they are multiplied
};

/// One micro-batch on the device: ragged rows one after the other, no padding. All i32.
struct TokenBatch {
  ConstTensor tokens, positions;        ///< [T]
  ConstTensor cu_seqlens;               ///< [n+1]: attention segments
  ConstTensor target_rows, target_ids;  ///< [m]: which tokens predict a target, and which
  std::int64_t longest = 0;             ///< 1 + the largest position
};

/// What a forward pass is for, and where its result goes.
struct ForwardRun {
  Pass pass = Pass::evaluate;
  Sink loss_sum = discard();  ///< f64 [1] on the device: the sum of the cross-entropy over all targets
  ConstTensor scale = {};     ///< f64 [1] on the device, for Pass::train: gradients are those of scale[0] * loss sum
  ConstTensor dropout_seed = {};  ///< i64 [1] on the device, for Pass::train; absent: no dropout
};

/// A weight of the base model that an adapter trains whole, in the adapter's store.
struct SavedWeight {
  Param* param;
  std::string base;  ///< its name in the base model, where its first values are
};

class Transformer;

/// Key/value cache of a batch of sequences: per layer keys and values [rows, capacity, kv_heads, head_dim].
class KvCache {
 public:
  /// In the type of the model's activations, on its device.
  KvCache(const Transformer& model, std::int64_t rows, std::int64_t capacity);
  Tensor keys(std::int64_t layer) const { return layers_[static_cast<std::size_t>(layer)].first; }
  Tensor values(std::int64_t layer) const { return layers_[static_cast<std::size_t>(layer)].second; }
  std::int64_t rows() const { return rows_; }
  std::int64_t capacity() const { return capacity_; }

 private:
  std::int64_t rows_, capacity_;
  Arena arena_;
  std::vector<std::pair<Tensor, Tensor>> layers_;
};

/// Tokens to run against a cache: token t goes to cache row cache_rows[t] at positions[t]; logits are computed for the
/// tokens named in `wanted`. All i32.
struct DecodeBatch {
  ConstTensor tokens, positions, cache_rows, wanted;
  std::int64_t longest = 0;
};

/// A decoder-only language model: forward and backward over a table of stages, on the memory of two stores and one
/// arena.
class Transformer {
 public:
  /// Declares what there will be on the device, which is not touched before `commit`.
  Transformer(Device device, TransformerOptions options);
  Transformer(Ctx& ctx, TransformerOptions options) : Transformer(ctx.device(), std::move(options)) {}

  const ModelConfig& config() const { return options_.config; }
  const TransformerOptions& options() const { return options_; }
  ParamStore& weights() { return weights_; }
  ParamStore& adapter() { return adapter_; }
  /// Dense copies of quantized weights; empty unless they are kept.
  ParamStore& dense_copies() { return copies_; }
  const std::deque<QuantizedLinear>& quantized() const { return quantized_; }
  const std::vector<SavedWeight>& saved_weights() const { return saved_; }
  /// Whether the head is the embedding.
  bool has_tied_head() const { return head_.weight == embedding_.weight; }
  /// Whether a weight is a part of one of those.
  bool is_quantized_part(const Param& p) const;
  std::vector<Param*> trained();
  /// Elements of the base model's weights, however they are held; and of them those of linear layers in the blocks.
  std::int64_t parameters() const;
  std::int64_t linear_parameters() const;

  /// Plans activations for every pass up to `largest`; commit allocates weights and activations.
  void plan(Pass pass, BatchSize largest);
  void commit();
  /// Bytes of activations that such plans would need; changes nothing.
  ActivationBytes activation_bytes(std::vector<PlannedPass> passes, const RecomputeChoice& choice) const;
  /// What the products of such passes convert on a GPU.
  ops::GemmMemory product_memory(const std::vector<PlannedPass>& passes) const;
  /// Another choice than that of the options, before anything is planned.
  void recompute_with(const RecomputeChoice& choice);
  /// Keeps dense copies of quantized weights instead of making them dense for each product: before anything is planned.
  void keep_dense_copies();
  bool keeps_dense_copies() const { return !copies_.all().empty(); }
  /// Bytes that they take, or would.
  std::size_t dense_copy_bytes() const;
  /// Keeps copies of float32 weights in the 16-bit type of the products; nothing where they multiply in float32. Before
  /// anything is planned.
  void keep_operand_copies();
  const OperandCopies& operand_copies() const { return operands_; }
  /// Bytes that those take, or would.
  std::size_t operand_copy_bytes() const;
  /// After an update: the copies of trained weights become theirs again.
  void refresh_operand_copies(Ctx& ctx) { operands_.refresh(ctx); }
  /// Bytes of the memory in which one quantized weight at a time becomes dense, where no copies are kept.
  std::size_t largest_dense_bytes() const;
  /// Bytes of scales and maps of quantized weights.
  std::size_t quantization_bytes() const;
  /// Fills the copies that are kept: of quantized weights after the base was loaded, of operands after the adapter too.
  void fill_dense_copies(Ctx& ctx);
  void fill_operand_copies(Ctx& ctx) { operands_.fill(ctx); }
  /// Lengths of the rows of adapted weights, which an adapter with magnitudes (DoRA) divides by; empty without.
  const ParamStore& row_norms() const { return norms_; }
  /// Measures those of W + scale * B A: after the base weights or the adapter have changed. Uses memory of the
  /// activations.
  void measure_rows(Ctx& ctx);
  /// Begins a new adapter's magnitudes with the lengths of the rows of W, which are there.
  void initialize_magnitudes(Ctx& ctx);
  /// Random weights, with the distribution of transformers.
  void initialize_weights(Ctx& ctx, std::uint64_t seed);
  const Arena& activations() const { return arenas_.device; }
  Device device() const { return arenas_.device.device(); }

  /// Fills tables for sequences of up to `longest` tokens where they depend on that. `forward` does it too, but cannot
  /// while its work is recorded.
  void prepare(Ctx& ctx, std::int64_t longest);
  /// Queues the pass; the loss of a batch without targets is 0. In Pass::train what `backward` begins with is left for
  /// it, and the head's weight gradients are added.
  void forward(Ctx& ctx, const TokenBatch& batch, const ForwardRun& run);
  /// Adds the gradient of every trained weight. `on_layer_done(layer)` is called as the blocks finish, last to first.
  void backward(Ctx& ctx, const TokenBatch& batch, const std::function<void(std::int64_t layer)>& on_layer_done = {});
  /// Logits [wanted, vocab] in f32, valid until the next call; extends the cache.
  Tensor decode(Ctx& ctx, const DecodeBatch& batch, KvCache& cache);

 private:
  struct ProjectionParams {
    Param *weight = nullptr, *bias = nullptr, *a = nullptr, *b = nullptr;
    Param *magnitude = nullptr, *norm = nullptr;  ///< with DoRA
    const QuantizedLinear* quantized = nullptr;   ///< instead of weight
    Param* copy = nullptr;                        ///< of it
    double scale = 1;                             ///< of the adapter
    std::uint64_t stream = 0;

    Shape shape() const { return quantized ? quantized->shape() : weight->spec.shape; }
    std::int64_t rank() const { return a ? a->spec.shape[0] : 0; }
  };
  /// Targets of a batch, and the number of the first.
  struct HeadChunkInput {
    ConstTensor rows, ids;
    std::int64_t first;
  };
  struct BlockParams {
    Param *norm1 = nullptr, *norm2 = nullptr, *q_norm = nullptr, *k_norm = nullptr;
    ProjectionParams linear[7];
  };

  bool trains_whole(std::string_view module) const;
  bool adapts(std::string_view module) const;
  Param* declare_base(ParamSpec spec);
  ParamSpec weight_spec(const std::string& name, Shape shape, Init init) const;
  Param* declare_head(Init init);
  void require_matches() const;
  Param* declare_vector(const std::string& name, std::int64_t size, Init init);
  void declare_block(std::int64_t layer);
  void initialize_quantized(Ctx& ctx, std::uint64_t seed);
  ProjectionParams declare_linear(std::int64_t layer, int which, Shape shape, bool bias);
  void declare_adapters(std::int64_t layer, BlockParams& block);
  LoraRanks lora_ranks() const;
  std::int64_t largest_stack() const;
  Param* declare_factor(const std::string& name, Shape shape, Init init);
  void declare_magnitude(const std::string& module, ProjectionParams& p);
  std::int64_t widest_decomposed() const;
  void declare_head_adapter(Shape shape);
  void declare_embedding_adapter(Shape shape);
  void embed(Ctx& ctx, ConstTensor tokens);
  void embed_grad(Ctx& ctx, ConstTensor tokens);
  BlockWeights acquire(std::int64_t layer) const;
  BlockWeights widest_training() const;
  Projection acquire_linear(const ProjectionParams& p) const;
  Projection exact_linear(const ProjectionParams& p) const;  ///< of a layer with an adapter, without copies of operands
  ConstTensor operand(const Param* p) const { return p ? operands_.of(*p) : Tensor{}; }
  bool is_looked_up(const Param& p) const;  ///< a table that no product reads
  bool is_operand(const Param& p) const;    ///< of products, in the type that it is held in
  void declare_operand_copies(OperandCopies& copies) const;
  std::int64_t largest_quantized() const;
  RecomputePlan recompute_plan(const RecomputeChoice& choice) const;
  ActivationPlan activation_plan() const;
  void begin(Ctx& ctx, Pass pass, BatchSize size);
  BlockRun block_run(Ctx& ctx, std::int64_t layer, const BlockWeights& w, const TokenContext& tokens);
  void run_block(Ctx& ctx, std::int64_t layer);
  std::int64_t groups() const;
  Tensor group_input(std::int64_t group) const;
  void stash_input(Ctx& ctx, std::int64_t layer);
  void find_inputs(Ctx& ctx, std::int64_t layer);
  void head_loss(Ctx& ctx, const TokenBatch& batch, const ForwardRun& run);
  void head_chunk(Ctx& ctx, const HeadChunkInput& chunk, const ForwardRun& run);

  TransformerOptions options_;
  ParamStore weights_, adapter_, copies_, norms_;
  OperandCopies operands_;
  std::deque<QuantizedLinear> quantized_;
  std::vector<SavedWeight> saved_;
  ProjectionParams embedding_;  ///< its adapter: A [rows, r] and B [width, r]
  Param* final_norm_ = nullptr;
  ProjectionParams head_;
  std::vector<BlockParams> blocks_;
  RecomputePlan recompute_;
  ActivationArenas arenas_;
  Activations act_;
  std::unique_ptr<InputOffload> offload_;  ///< with BlockInputs::host
  std::vector<PlannedPass> planned_;
  std::int64_t most_positions_ = 0;  ///< of any planned pass
  std::int64_t rope_rows_ = 0;       ///< rows of the rotary tables that are filled
  TokenContext tokens_;
};

}  // namespace qtrain
