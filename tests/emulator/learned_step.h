#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "core/launch_times.h"
#include "core/transfer.h"
#include "tests/emulator/small_model.h"

/// What a small model learns in a micro-batch, on a GPU or on a processor.
namespace qtrain::testing {

/// A model with heads of Qwen2.5-0.5B, and a batch of two documents.
struct Tried {
  Json config;
  TransformerOptions options;
  int tokens = 12;
  ExecutionChoice choice = {};
  int micro_batches = 1;
};

inline Tried dense(Json more = Json::object()) {
  Json config = {{"model_type", "llama"},
                 {"vocab_size", 16},
                 {"hidden_size", 64},
                 {"intermediate_size", 192},
                 {"num_hidden_layers", 2},
                 {"num_attention_heads", 14},
                 {"num_key_value_heads", 2},
                 {"head_dim", 64},
                 {"max_position_embeddings", 64},
                 {"rms_norm_eps", 1e-5},
                 {"tie_word_embeddings", true}};
  config.update(more);
  return {.config = config, .options = {}};
}

/// The gradients of a step by parameter, its loss, and its launches by name.
struct Learned {
  std::map<std::string, std::vector<float>> gradients;
  std::map<std::string, int> launches;
  double loss = 0;

  int times(const std::string& name) const { return launches.contains(name) ? launches.at(name) : 0; }
  int gemms() const { return times("gemm"); }
};

inline Learned step(const Tried& t, Device device, JoinProjections join) {
  Ctx ctx(device, t.options.activation_dtype == DType::bf16 ? MatmulPrecision::bf16 : MatmulPrecision::storage, 1);
  TransformerOptions options = t.options;
  options.config = parse_model_config(t.config, "tried");
  options.join = join;
  const BatchSize size{.tokens = t.tokens, .positions = t.tokens, .targets = t.tokens - 1};
  Transformer model(ctx, options);
  Runner runner(model, {t.choice, {{Pass::train, size}}});
  runner.initialize_weights(ctx, 3);
  model.adapter().initialize(ctx, 4);
  for (Param& p : model.adapter().all())  // B, which starts at zero
    if (p.spec.name.ends_with("lora_B.weight"))
      write_values(ctx, p, [](std::int64_t first, Tensor part) {
        for (float& v : part.span<float>()) v = 0.1F * std::sin(static_cast<float>(first++));
      });
  runner.values_changed();
  if (t.choice.dense_copies == KeepCopies::yes) runner.copies().fill_dense(ctx, model.params());
  model.weights().zero_grads(ctx);
  model.adapter().zero_grads(ctx);
  std::vector<std::int32_t> tokens, positions, rows, targets;
  for (std::int32_t i = 0; i < t.tokens; ++i) {
    tokens.push_back(i * 7 % 16);
    positions.push_back(i < 2 ? i : i - 2);
    if (i + 1 < t.tokens) rows.push_back(i), targets.push_back((i + 1) * 7 % 16);
  }
  const Integers ids(ctx, tokens), places(ctx, positions), borders(ctx, {0, 2, t.tokens}), which(ctx, rows),
      wanted(ctx, targets);
  const TokenBatch batch{.tokens = ids.view(),
                         .positions = places.view(),
                         .cu_seqlens = borders.view(),
                         .target_rows = which.view(),
                         .target_ids = wanted.view(),
                         .longest = t.tokens};
  const DeviceMemory numbers(device, 2 * sizeof(double));
  const double one_and_none[] = {1, 0};
  ctx.stream().copy(numbers.data(), one_and_none, sizeof one_and_none);
  const Tensor both{numbers.data(), DType::f64, {2}, device};
  Learned out;
  {
    LaunchTimes times(ctx.stream());
    for (int i = 0; i < t.micro_batches; ++i) {
      runner.forward(ctx, batch,
                     {.pass = Pass::train, .loss_sum = accumulate(both.slice(1, 1)), .scale = both.slice(0, 1)});
      runner.backward(ctx, batch);
    }
    for (const LaunchTimes::Row& r : times.rows()) out.launches[r.name] += static_cast<int>(r.launches);
  }
  HostCopy host(device);
  out.loss = host.of(ctx, both).as<double>()[1];
  for (const Param* p : model.trained()) {
    const auto values = host.of(ctx, p->grad).span<float>();
    out.gradients[p->spec.name] = {values.begin(), values.end()};
  }
  return out;
}

}  // namespace qtrain::testing
