#include "convert/gguf/layout.h"

#include <fmt/format.h>

#include "model/families/family.h"
#include "model/module_names.h"

namespace qtrain {
namespace {

/// Adds the weights of one layer, from the family's table.
class LayerLayout {
 public:
  LayerLayout(const ModelConfig& config, std::int64_t index, std::vector<GgufWeight>& out)
      : config_(config),
        blk_(fmt::format("blk.{}.", index)),
        prefix_(fmt::format("model.layers.{}.", index)),
        out_(out) {}

  void add(const VectorSpec& v) {
    out_.push_back(
        {.gguf = blk_ + named(v.gguf), .shape = {v.size}, .names = {prefix_ + v.name}, .offset = config_.norm_offset});
  }
  void add(const LinearSpec& l) {
    const std::int64_t heads = config_.family->gguf.interleaves_rotary ? l.rotary_heads : 0;
    const bool one_row = l.out == 1;
    out_.push_back({.gguf = blk_ + named(l.gguf) + ".weight",
                    .shape = one_row ? std::vector{l.in} : std::vector{l.out, l.in},
                    .names = {prefix_ + l.module + ".weight"},
                    .rotary_heads = heads,
                    .full_precision = l.kind == LinearKind::router,
                    .one_row = one_row});
    if (l.bias == Bias::no) return;
    out_.push_back({.gguf = blk_ + l.gguf + ".bias",
                    .shape = {l.out},
                    .names = {prefix_ + l.module + ".bias"},
                    .rotary_heads = heads});
  }
  void add(const ExpertsSpec& e) {
    GgufWeight weight{.gguf = blk_ + named(e.gguf) + ".weight", .shape = {e.count, e.out, e.in}, .names = {}};
    for (std::int64_t i = 0; i < e.count; ++i) weight.names.push_back(prefix_ + e.tensor_of(i));
    out_.push_back(std::move(weight));
  }

 private:
  static const std::string& named(const std::string& gguf) {
    check(!gguf.empty(), "a parameter of a family with a GGUF architecture has no GGUF name");
    return gguf;
  }

  const ModelConfig& config_;
  std::string blk_, prefix_;
  std::vector<GgufWeight>& out_;
};

}  // namespace

std::vector<std::int64_t> GgufWeight::shape_of_one() const {
  if (one_row) return {1, shape.front()};
  return shape.size() == 3 ? std::vector(shape.begin() + 1, shape.end()) : shape;
}

RotaryRows rows_of(const GgufWeight& weight) {
  return {weight.rotary_heads > 0 ? weight.shape.front() / weight.rotary_heads : 0};
}

std::vector<GgufWeight> gguf_layout(const ModelConfig& config) {
  const std::vector<std::int64_t> table{config.vocab_size, config.hidden_size};
  std::vector<GgufWeight> all{{.gguf = "token_embd.weight", .shape = table, .names = {kEmbeddingWeight}}};
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const Layer layer = config.family->layer(config, i);
    LayerLayout weights(config, i, all);
    for (const ParamId& id : layer.order) std::visit([&](auto which) { weights.add(layer.spec(which)); }, id);
  }
  all.push_back({.gguf = "output_norm.weight",
                 .shape = {config.hidden_size},
                 .names = {kFinalNormWeight},
                 .offset = config.norm_offset});
  if (!config.tie_word_embeddings) all.push_back({.gguf = "output.weight", .shape = table, .names = {kHeadWeight}});
  return all;
}

std::int64_t RotaryRows::in_gguf(std::int64_t hf_row) const {
  if (head_dim == 0) return hf_row;
  const std::int64_t head = hf_row / head_dim, in_head = hf_row % head_dim;
  const std::int64_t half = in_head / (head_dim / 2), pair = in_head % (head_dim / 2);
  return head * head_dim + 2 * pair + half;
}

std::int64_t RotaryRows::in_hf(std::int64_t gguf_row) const {
  if (head_dim == 0) return gguf_row;
  const std::int64_t head = gguf_row / head_dim, in_head = gguf_row % head_dim;
  return head * head_dim + in_head % 2 * (head_dim / 2) + in_head / 2;
}

}  // namespace qtrain
