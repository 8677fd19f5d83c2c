#pragma once
#include <deque>
#include <memory>
#include <vector>

#include "model/runner.h"

namespace qtrain {

/// Memory that an execution of a model would take, in bytes.
struct ExecutionMemory {
  ActivationBytes activations;
  std::size_t dense_copies = 0;    ///< dense copies of quantized weights
  std::size_t operand_copies = 0;  ///< 16-bit copies of float32 weights
  ops::GemmMemory gemm;            ///< operands that GEMMs convert on a GPU
};

/// A decoder-only language model: it is declared, then given memory for an execution, then run. It consists of the
/// tables of its layers, their parameters, copies of these, an execution plan, and the runner.
class Transformer {
 public:
  /// Declares the model. The device is not touched before `commit`.
  Transformer(Device device, TransformerOptions options);
  Transformer(Ctx& ctx, TransformerOptions options) : Transformer(ctx.device(), std::move(options)) {}
  Transformer(const Transformer&) = delete;
  Transformer& operator=(const Transformer&) = delete;

  const ModelConfig& config() const { return options_.config; }
  const TransformerOptions& options() const { return options_; }
  Device device() const { return device_; }
  ModelParts parts() const { return {device_, options_, layers_, params_}; }
  const std::vector<Layer>& layers() const { return layers_; }
  Parameters& params() { return params_; }
  const Parameters& params() const { return params_; }
  ParamStore& weights() { return params_.weights(); }
  ParamStore& adapter() { return params_.adapter().store(); }
  const std::deque<QuantizedLinear>& quantized() const { return params_.quantized(); }
  std::vector<Param*> trained() { return params_.trained(); }

  /// Measures the memory of an execution without allocating it.
  ExecutionMemory measure(const ExecutionChoice& choice, const std::vector<PlannedPass>& passes) const;
  /// Allocates weights, copies and activations. Throws a usage error if the choice is contradictory.
  void commit(const ExecutionChoice& choice, std::vector<PlannedPass> passes) {
    commit(choice, std::move(passes), nullptr);
  }
  /// Likewise, but shares the frozen base weights of `base`, which must be committed and outlive this: for another
  /// adapter on the same base.
  void commit_on(const Transformer& base, const ExecutionChoice& choice, std::vector<PlannedPass> passes) {
    commit(choice, std::move(passes), &base.params_);
  }
  /// Only after `commit`.
  const ExecutionPlan& plan() const { return *plan_; }
  const WeightCopies& copies() const { return copies_; }
  const Arena& activations() const { return runner_->activations(); }

  /// Random base-model weights, distributed as in transformers.
  void initialize_weights(Ctx& ctx, std::uint64_t seed) {
    params_.initialize(ctx, seed);
    values_changed();
  }
  /// Initializes a new adapter's magnitudes with the L2 norms of the rows of W; call it after W was loaded.
  void initialize_magnitudes(Ctx& ctx);
  /// Updates the L2 norms of the rows of W + scale * B A; call it after the base weights or the adapter have changed.
  void measure_rows(Ctx& ctx);
  /// Fill the copies: of quantized weights after the base was loaded, of GEMM operands after the adapter was loaded
  /// too.
  void fill_dense_copies(Ctx& ctx) { copies_.fill_dense(ctx, params_); }
  void fill_operand_copies(Ctx& ctx) { copies_.fill_operands(ctx); }
  /// Updates the copies of trained weights after an optimizer step.
  void refresh_operand_copies(Ctx& ctx) { copies_.refresh_operands(ctx); }

  /// See Runner::prepare.
  void prepare(Ctx& ctx, std::int64_t longest) { runner_->prepare(ctx, longest); }
  /// Queues a forward pass; a batch without targets has loss 0. With Pass::train, it also leaves the state that
  /// `backward` starts from, and adds the head's weight gradients.
  void forward(Ctx& ctx, const TokenBatch& batch, const ForwardRun& run) { runner_->forward(ctx, batch, run); }
  /// Adds the gradient of every trained weight.
  void backward(Ctx& ctx, const TokenBatch& batch) { runner_->backward(ctx, batch); }
  /// See Runner::follow and Runner::set_access: for a model that is sharded among ranks.
  void follow(Ctx& ctx, Pass pass) { runner_->follow(ctx, pass); }
  void set_access(UnitAccess& access) { runner_->set_access(access); }
  /// See Runner::set_key_exchange: for a model whose ranks share tokens.
  void set_key_exchange(KeyExchange& exchange) { runner_->set_key_exchange(exchange); }
  /// Call it after parameters were loaded or updated.
  void values_changed() { runner_->values_changed(); }
  /// Logits [wanted, vocab] in f32, valid until the next call; extends the cache.
  Tensor decode(Ctx& ctx, const DecodeBatch& batch, KvCache& cache) { return runner_->decode(ctx, batch, cache); }

 private:
  void commit(const ExecutionChoice& choice, std::vector<PlannedPass> passes, const Parameters* base);
  void for_each_adapted(Ctx& ctx, const std::function<void(const LinearParams&)>& act);

  TransformerOptions options_;
  Device device_;
  std::vector<Layer> layers_;
  Parameters params_;
  WeightCopies copies_;
  std::unique_ptr<const ExecutionPlan> plan_;
  std::unique_ptr<Runner> runner_;
};

}  // namespace qtrain
