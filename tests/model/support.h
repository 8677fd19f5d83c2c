#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/first_gradients.h"
#include "model/runner.h"

namespace qtrain::testing {

constexpr std::int32_t kNoLabel = -100;

/// A row as in a data set: labels are not shifted; kNoLabel is not a target.
struct LabeledRow {
  std::vector<std::int32_t> ids, labels;
};

/// Concatenated rows as a TokenBatch; owns the memory.
class Ragged {
 public:
  explicit Ragged(const std::vector<LabeledRow>& rows) {
    for (const LabeledRow& row : rows) add(row);
  }

  TokenBatch batch() const {
    return {.tokens = view(tokens_),
            .positions = view(positions_),
            .cu_seqlens = view(starts_),
            .target_rows = view(target_rows_),
            .target_ids = view(target_ids_),
            .longest = longest_};
  }
  BatchSize size() const { return {.tokens = length(tokens_), .positions = longest_, .targets = length(target_ids_)}; }
  std::int64_t targets() const { return length(target_ids_); }

 private:
  static std::int64_t length(const std::vector<std::int32_t>& v) { return static_cast<std::int64_t>(v.size()); }
  static ConstTensor view(const std::vector<std::int32_t>& v) {
    return view_of(std::span<const std::int32_t>(v), {length(v)});
  }
  void add(const LabeledRow& row) {
    for (std::size_t i = 0; i < row.ids.size(); ++i) {
      if (i + 1 < row.ids.size() && row.labels[i + 1] != kNoLabel) {
        target_rows_.push_back(static_cast<std::int32_t>(tokens_.size()));
        target_ids_.push_back(row.labels[i + 1]);
      }
      tokens_.push_back(row.ids[i]);
      positions_.push_back(static_cast<std::int32_t>(i));
    }
    starts_.push_back(static_cast<std::int32_t>(tokens_.size()));
    longest_ = std::max(longest_, static_cast<std::int64_t>(row.ids.size()));
  }

  std::vector<std::int32_t> tokens_, positions_, starts_{0}, target_rows_, target_ids_;
  std::int64_t longest_ = 0;
};

using Values = std::vector<double>;
using NamedValues = std::map<std::string, Values>;

inline Values values_of(ConstTensor t) {
  Values out(static_cast<std::size_t>(t.numel()));
  dispatch_float(t.dtype, [&]<class T>() {
    const T* p = t.as<T>();
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<double>(p[i]);
  });
  return out;
}

/// The gradient of a parameter in the layout of files.
inline Values grad_of(const Param& p) {
  Values g = values_of(p.grad);
  if (!p.spec.file_order) return g;
  Values out(g.size());
  const auto view = [](Values& v) { return view_of(std::span<double>(v), {static_cast<std::int64_t>(v.size())}); };
  to_file_order(*p.spec.file_order, view(g), view(out));
  return out;
}

/// The gradients of a parameter by their names in files.
inline void add_grads(const Param& p, NamedValues& grads) {
  const Values all = grad_of(p);
  const std::vector<std::string>& slices = p.spec.slices_in_files;
  if (slices.empty()) grads.emplace(p.spec.name, all);
  const std::size_t size = slices.empty() ? 0 : all.size() / slices.size();
  for (std::size_t i = 0; i < slices.size(); ++i)
    grads.emplace(slices[i], Values(all.begin() + static_cast<std::ptrdiff_t>(i * size),
                                    all.begin() + static_cast<std::ptrdiff_t>((i + 1) * size)));
}

/// The results of one step. Compared with ==, so all bits must be equal.
struct Outcome {
  double loss_sum = 0;
  double router_loss = 0;  ///< if config.json asks for it
  NamedValues grads;

  double grad_norm() const {
    double total = 0;
    for (const auto& [name, g] : grads)
      for (const double v : g) total += v * v;
    return std::sqrt(total);
  }
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

/// The settings of a step besides the model.
struct StepInput {
  double scale = 1;  ///< gradients are those of scale * loss sum
  std::int64_t dropout_seed = 0;
  GradientSum first = GradientSum::first;  ///< of the first micro-batch: `further` adds to zeros
};

/// A model that has memory.
struct PlannedModel : Transformer {
  PlannedModel(Ctx& ctx, TransformerOptions options, Execution execution)
      : Transformer(ctx, std::move(options)), runner(*this, std::move(execution)) {}
  Runner runner;
};

/// The loss sum of one pass; a training pass also prepares `backward`.
inline double loss_of(Ctx& ctx, PlannedModel& model, const TokenBatch& batch, ForwardRun run = {}) {
  double loss = std::nan("");
  run.loss_sum = store(view_of(std::span<double>(&loss, 1), {1}));
  model.runner.forward(ctx, batch, run);
  return loss;
}

/// Adds the loss of the routers to `sum`, if the model has one.
inline RouterLossRun router_loss_into(double& sum, const Transformer& model) {
  if (!model.config().is_balanced()) return {};
  return {.sum = accumulate(view_of(std::span<double>(&sum, 1), {1})),
          .coefficient = model.config().experts->balance_coefficient};
}

/// As a training step does before its first micro-batch: what that stores has no value yet, here NaN.
inline void begin_gradients(Ctx& ctx, PlannedModel& model, GradientSum first) {
  if (first == GradientSum::further) {
    model.weights().zero_grads(ctx);
    model.adapter().zero_grads(ctx);
    return;
  }
  for (const Param* p : model.trained()) ctx.stream().fill(p->grad.data, 0xff, p->grad.bytes());
  zero_added_gradients(ctx, model.params());
}

/// Runs every micro-batch forward and backward, and collects.
inline Outcome train_step(Ctx& ctx, PlannedModel& model, const std::vector<Ragged>& micro_batches, StepInput in) {
  begin_gradients(ctx, model, in.first);
  Outcome out;
  const ConstTensor scale = view_of(std::span<const double>(&in.scale, 1), {1});
  const ConstTensor seed = view_of(std::span<const std::int64_t>(&in.dropout_seed, 1), {1});
  for (const Ragged& m : micro_batches) {
    out.loss_sum += loss_of(ctx, model, m.batch(),
                            {.pass = Pass::train,
                             .gradients = std::exchange(in.first, GradientSum::further),
                             .scale = scale,
                             .dropout_seed = seed,
                             .router_loss = router_loss_into(out.router_loss, model)});
    model.runner.backward(ctx, m.batch());
  }
  for (const Param* p : model.trained()) add_grads(*p, out.grads);
  return out;
}

/// A model planned for `size` in training and evaluation, without values.
inline std::unique_ptr<PlannedModel> planned_model(Ctx& ctx, TransformerOptions options, BatchSize size,
                                                   const ExecutionChoice& choice = {}) {
  return std::make_unique<PlannedModel>(ctx, std::move(options),
                                        Execution{choice, {{Pass::train, size}, {Pass::evaluate, size}}});
}

/// The choice of a recompute policy by its name.
inline ExecutionChoice recomputing(std::string_view policy, BlockInputs inputs = BlockInputs::device) {
  return {.recompute = {RecomputePolicy::named(policy), inputs}};
}

/// A small model of the given family; `more` overrides fields of its config.json.
inline Json small_config(const Json& more) {
  Json c = {{"model_type", "llama"},    {"vocab_size", 29},       {"hidden_size", 12},
            {"intermediate_size", 20},  {"num_hidden_layers", 2}, {"num_attention_heads", 4},
            {"num_key_value_heads", 2}, {"head_dim", 6},          {"max_position_embeddings", 64},
            {"initializer_range", 0.3}, {"rms_norm_eps", 1e-5},   {"tie_word_embeddings", false}};
  if (!more.is_null()) c.update(more);
  return c;
}

/// Ragged rows with all special cases: one token, no target, a label at the first position.
inline std::vector<LabeledRow> small_rows() {
  constexpr std::int32_t n = kNoLabel;
  return {{{3, 7, 7, 1, 28, 5, 9}, {3, 7, 7, 1, 28, 5, 9}},
          {{4}, {4}},
          {{11, 12, 2, 25, 6}, {n, n, 2, n, 6}},
          {{8, 9, 10}, {n, n, n}}};
}

}  // namespace qtrain::testing
