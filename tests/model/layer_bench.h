#pragma once
#include <deque>
#include <functional>

#include "model/families/family.h"
#include "model/layer/layer.h"
#include "tests/kernels/support.h"
#include "tests/model/support.h"

namespace qtrain::testing {

/// Which parameters of a layer have gradients.
enum class Trained { nothing, adapter, everything };

/// `more`: fields of config.json, and "joins_projections" and "finds_largest" for those members of ModelConfig.
inline ModelConfig layer_config(Json more) {
  const auto take = [&](const char* key) {
    const bool value = more.is_object() && more.value(key, false);
    if (value) more.erase(key);
    return value;
  };
  const bool joins = take("joins_projections"), finds = take("finds_largest");
  ModelConfig config = parse_model_config(small_config(more), "small");
  config.joins_projections = joins;
  config.finds_largest = config.finds_largest_x = finds;
  return config;
}

inline std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& e) {
    return e.text().cause;
  }
  return "";
}

inline TensorId id_of(std::size_t t) {
  return static_cast<TensorId>(t);
}

/// A layer with random parameters in f64, adapters with dropout on all of its linear layers, and memory for tensors.
class LayerBench {
 public:
  static constexpr std::int64_t kRows = 7, kRank = 3;

  LayerBench(const Json& more, Trained trained) : config_(layer_config(more)), trained_(trained), layer_(make_layer()) {
    for (const VectorSpec& v : layer_.vectors) weights_.vectors.push_back({keep({v.size}), base({v.size})});
    for (const LinearSpec& l : layer_.linears) weights_.linears.push_back(linear(l));
    tokens_ = {.positions = positions_,
               .cu_seqlens = starts_,
               .rotary = {{cos_.tensor(), sin_.tensor()}, {cos_.tensor(), sin_.tensor()}},
               .dropout_seed = seed_.tensor()};
    *seed_.tensor().as<std::int64_t>() = 5;
  }

  const Layer& layer() const { return layer_; }
  const LayerWeights& weights() const { return weights_; }
  LayerRun run(std::vector<Tensor> s, std::vector<Tensor> d) {
    s_ = std::move(s);
    d_ = std::move(d);
    return {.ctx = ctx_,
            .w = weights_,
            .tokens = tokens_,
            .s = s_,
            .d = d_,
            .scratch = scratch_.tensor(),
            .dense = {},
            .touched = {}};
  }
  Shape shape(TensorId t) const {
    for (const LinearGroup& group : layer_.groups)
      if (group.lora == t) return {kRows, kRank * static_cast<std::int64_t>(group.layers.size())};
    return layer_.spec(t).shape_for(kRows);
  }
  /// Memory for every tensor in `with`; other tensors have a shape but no storage, so that accessing them is an error.
  std::vector<Tensor> tensors(TensorSet with, double value) {
    std::vector<Tensor> out;
    for (std::size_t t = 0; t < layer_.tensors.size(); ++t) {
      out.push_back({nullptr, DType::f64, shape(id_of(t)), {}});
      if (with.has(id_of(t))) out.back() = filled(shape(id_of(t)), value);
    }
    return out;
  }

 private:
  Layer make_layer() const { return std::move(make_layers(config_).front()); }
  Tensor filled(Shape shape, double value) {
    const Tensor t = keep(shape);
    if (std::isnan(value)) std::fill_n(t.as<double>(), t.numel(), value);
    return t;
  }
  Tensor keep(Shape shape) {
    arrays_.push_back(random(DType::f64, shape, ++salt_));
    return arrays_.back().tensor();
  }
  Sink base(Shape shape) { return trained_ == Trained::everything ? accumulate(keep(shape)) : discard(); }
  Projection linear(const LinearSpec& l) {
    const Shape w{l.out, l.in};
    Projection p{.weight = keep(w), .bias = keep({l.out}), .dweight = base(w), .dbias = base({l.out})};
    const auto sink = [&](Shape s) { return trained_ == Trained::nothing ? discard() : accumulate(keep(s)); };
    p.lora = {.a = keep({kRank, l.in}),
              .b = keep({l.out, kRank}),
              .da = sink({kRank, l.in}),
              .db = sink({l.out, kRank}),
              .scale = 0.5,
              .dropout = 0.25,
              .stream = ++salt_};
    return p;
  }

  ModelConfig config_;
  Trained trained_;
  Layer layer_;
  std::uint64_t salt_ = 0;
  Ctx ctx_{{}, MatmulPrecision::storage, 1};
  std::deque<Array> arrays_;
  Array positions_ = integers({0, 1, 2, 3, 0, 1, 2}), starts_ = integers({0, 4, 7});
  Shape table_{4, config_.ropes.front().dims(config_.head_dim) / 2};
  Array cos_ = random(DType::f64, table_, 901), sin_ = random(DType::f64, table_, 902);
  Array seed_{DType::i64, {1}}, scratch_{DType::f64, {kRows * (3 * kRank + 64)}};
  LayerWeights weights_;
  TokenContext tokens_;
  std::vector<Tensor> s_, d_;
};

template <class Act>
void each(TensorSet set, Act&& act) {
  for (std::size_t t = 0; t < TensorSet::kCapacity; ++t)
    if (set.has(id_of(t))) act(t);
}

}  // namespace qtrain::testing
