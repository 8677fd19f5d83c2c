#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "model/model_config.h"

namespace qtrain {

/// Maximum bytes of a sentencepiece piece that is split into pairs: the work is quadratic in the length.
inline constexpr std::size_t kLongestPiece = 1024;

/// A tensor of a GGUF file and its counterpart in a Hugging Face folder.
struct GgufWeight {
  std::string gguf;                 ///< "blk.0.attn_q.weight"
  std::vector<std::int64_t> shape;  ///< [rows, columns], [values], or [experts, rows, columns]
  /// "model.layers.0.self_attn.q_proj.weight"; one name per expert for experts.
  std::vector<std::string> names;
  /// If above 0, the rows are in interleaved rotary order within that many heads, as GGUF stores the query and key
  /// projections of the llama architecture.
  std::int64_t rotary_heads = 0;
  double offset = 0;            ///< constant that the file adds to the values: 1 for norms that multiply by weight + 1
  bool full_precision = false;  ///< stored as f32 in files of any type
  bool one_row = false;         ///< a matrix [1, columns] that the file holds as a vector

  const std::string& name() const { return names.front(); }
  /// The shape of one of `names`.
  std::vector<std::int64_t> shape_of_one() const;
};

/// All weights of the model in its order. Source: llama.cpp's tensor names (gguf-py's constants.py).
std::vector<GgufWeight> gguf_layout(const ModelConfig& config);

/// Maps rows of a matrix between GGUF's interleaved order and Hugging Face's. Within a head of d rows, element
/// (half j, pair i) is row j d/2 + i for Hugging Face and row 2 i + j in GGUF.
struct RotaryRows {
  std::int64_t head_dim = 0;  ///< 0 if both orders are the same

  std::int64_t in_gguf(std::int64_t hf_row) const;
  std::int64_t in_hf(std::int64_t gguf_row) const;
};

/// The row order of the tensors of `weight`.
RotaryRows rows_of(const GgufWeight& weight);

}  // namespace qtrain
