#pragma once
#include <deque>
#include <memory>
#include <vector>

#include "model/runner.h"

namespace qtrain {

/// What an execution of a model would take, in bytes.
struct ExecutionMemory {
  ActivationBytes activations;
  std::size_t dense_copies = 0;    ///< that are kept
  std::size_t operand_copies = 0;  ///< that are kept
  ops::GemmMemory gemm;            ///< operands that are converted, on a GPU
};

/// A decoder-only language model: declared, then given memory for an execution, then run. Its parts: the tables of its
/// layers, their parameters, copies of these, an execution plan, and what runs it.
class Transformer {
 public:
  /// Declares what there will be on the device, which is not touched before `commit`.
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

  /// What such an execution would take; changes nothing.
  ExecutionMemory measure(const ExecutionChoice& choice, const std::vector<PlannedPass>& passes) const;
  /// Allocates weights, copies and activations. A usage error where the choice contradicts itself.
  void commit(const ExecutionChoice& choice, std::vector<PlannedPass> passes) {
    commit(choice, std::move(passes), nullptr);
  }
  /// The same with the frozen base weights of `base`, which has its memory and outlives this: another adapter on them.
  void commit_on(const Transformer& base, const ExecutionChoice& choice, std::vector<PlannedPass> passes) {
    commit(choice, std::move(passes), &base.params_);
  }
  /// Since `commit`.
  const ExecutionPlan& plan() const { return *plan_; }
  const WeightCopies& copies() const { return copies_; }
  const Arena& activations() const { return runner_->activations(); }

  /// Random weights of the base model, with the distribution of transformers.
  void initialize_weights(Ctx& ctx, std::uint64_t seed) {
    params_.initialize(ctx, seed);
    values_changed();
  }
  /// Begins a new adapter's magnitudes with the L2 norms of the rows of W, which are there.
  void initialize_magnitudes(Ctx& ctx);
  /// Measures the L2 norms of the rows of W + scale * B A: after the base weights or the adapter have changed.
  void measure_rows(Ctx& ctx);
  /// Fills the copies that are kept: of quantized weights after the base was loaded, of operands after the adapter too.
  void fill_dense_copies(Ctx& ctx) { copies_.fill_dense(ctx, params_); }
  void fill_operand_copies(Ctx& ctx) { copies_.fill_operands(ctx); }
  /// After an update: the copies of trained weights become theirs again.
  void refresh_operand_copies(Ctx& ctx) { copies_.refresh_operands(ctx); }

  /// See Runner::prepare.
  void prepare(Ctx& ctx, std::int64_t longest) { runner_->prepare(ctx, longest); }
  /// Queues the pass; the loss of a batch without targets is 0. In Pass::train what `backward` begins with is left for
  /// it, and the head's weight gradients are added.
  void forward(Ctx& ctx, const TokenBatch& batch, const ForwardRun& run) { runner_->forward(ctx, batch, run); }
  /// Adds the gradient of every trained weight.
  void backward(Ctx& ctx, const TokenBatch& batch) { runner_->backward(ctx, batch); }
  /// See Runner::follow and Runner::set_access: of a model that is divided among ranks.
  void follow(Ctx& ctx, Pass pass) { runner_->follow(ctx, pass); }
  void set_access(UnitAccess& access) { runner_->set_access(access); }
  /// See Runner::set_key_exchange: of a model whose ranks share tokens.
  void set_key_exchange(KeyExchange& exchange) { runner_->set_key_exchange(exchange); }
  /// After parameters were loaded or updated.
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
