#pragma once
#include <cstdint>
#include <vector>

#include "model/runner.h"

/// A model and a micro-batch for programs whose order of work is checked.
namespace qtrain::testing {

inline constexpr Device kCuda{DeviceKind::cuda, 0};

/// i32 on the device.
class Integers {
 public:
  Integers(Ctx& ctx, const std::vector<std::int32_t>& values) : memory_(ctx.device(), values.size() * 4) {
    view_ = {memory_.data(), DType::i32, {static_cast<std::int64_t>(values.size())}, ctx.device()};
    ctx.stream().copy(memory_.data(), values.data(), memory_.bytes());
  }
  ConstTensor view() const { return view_; }

 private:
  DeviceMemory memory_;
  Tensor view_;
};

/// A model with this many blocks.
inline ModelConfig small_model(int blocks) {
  return parse_model_config({{"model_type", "llama"},
                             {"vocab_size", 16},
                             {"hidden_size", 8},
                             {"intermediate_size", 8},
                             {"num_hidden_layers", blocks},
                             {"num_attention_heads", 2},
                             {"num_key_value_heads", 1},
                             {"head_dim", 4},
                             {"max_position_embeddings", 8},
                             {"rms_norm_eps", 1e-5},
                             {"tie_word_embeddings", true}},
                            "small");
}

/// Documents of three tokens, two of which predict a target.
class SmallBatch {
 public:
  static constexpr BatchSize size_of(int documents) {
    return {.tokens = 3 * documents, .positions = 3, .targets = 2 * documents};
  }
  static constexpr BatchSize kSize{.tokens = 3, .positions = 3, .targets = 2};

  explicit SmallBatch(Ctx& ctx, int documents = 1)
      : tokens_(ctx, of_each(documents, {3, 9, 4})),
        positions_(ctx, of_each(documents, {0, 1, 2})),
        starts_(ctx, starts_of(documents)),
        rows_(ctx, of_each(documents, {0, 1}, 3)),
        targets_(ctx, of_each(documents, {9, 4})),
        numbers_(ctx.device(), 2 * sizeof(double)) {
    const double one_and_none[] = {1, 0};
    ctx.stream().copy(numbers_.data(), one_and_none, sizeof one_and_none);
  }
  void forward_and_backward(Ctx& ctx, Runner& runner) const {
    const Tensor both{numbers_.data(), DType::f64, {2}, ctx.device()};
    const TokenBatch batch{.tokens = tokens_.view(),
                           .positions = positions_.view(),
                           .cu_seqlens = starts_.view(),
                           .target_rows = rows_.view(),
                           .target_ids = targets_.view(),
                           .longest = 3};
    runner.forward(ctx, batch,
                   {.pass = Pass::train, .loss_sum = accumulate(both.slice(1, 1)), .scale = both.slice(0, 1)});
    runner.backward(ctx, batch);
  }

 private:
  /// The values of the first document, plus `step` times the number of the document.
  static std::vector<std::int32_t> of_each(int documents, const std::vector<std::int32_t>& first, int step = 0) {
    std::vector<std::int32_t> all;
    for (int d = 0; d < documents; ++d)
      for (const std::int32_t v : first) all.push_back(v + d * step);
    return all;
  }
  static std::vector<std::int32_t> starts_of(int documents) { return of_each(documents + 1, {0}, 3); }

  Integers tokens_, positions_, starts_, rows_, targets_;
  DeviceMemory numbers_;
};

}  // namespace qtrain::testing
