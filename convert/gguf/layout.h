#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "model/model_config.h"

namespace qtrain {

/// Bytes of the longest piece of a sentencepiece vocabulary that is cut into pairs: the work grows with the square.
inline constexpr std::size_t kLongestPiece = 1024;

/// A tensor of a GGUF file and what it is in a Hugging Face folder.
struct GgufWeight {
  std::string gguf;                 ///< "blk.0.attn_q.weight"
  std::vector<std::int64_t> shape;  ///< [rows, columns], [values], or [experts, rows, columns]
  /// "model.layers.0.self_attn.q_proj.weight"; one for each of the experts.
  std::vector<std::string> names;
  /// Above 0: the rows lie in interleaved rotary order within that many heads, as GGUF keeps the query and key
  /// projections of the llama architecture.
  std::int64_t rotary_heads = 0;
  double offset = 0;  ///< what the file adds to the values: norms that multiply by weight + 1 lie there as that
  bool full_precision = false;  ///< f32 in files of any type

  const std::string& name() const { return names.front(); }
  /// Of one of `names`.
  std::vector<std::int64_t> shape_of_one() const;
};

/// Every weight of the model in its order. Source: llama.cpp's tensor names (gguf-py's constants.py).
std::vector<GgufWeight> gguf_layout(const ModelConfig& config);

/// Rows of a matrix in GGUF's interleaved order and in Hugging Face's. Within a head of d rows, element
/// (half j, pair i) is row j d/2 + i for Hugging Face and row 2 i + j in GGUF.
struct RotaryRows {
  std::int64_t head_dim = 0;  ///< 0: both orders are the same

  std::int64_t in_gguf(std::int64_t hf_row) const;
  std::int64_t in_hf(std::int64_t gguf_row) const;
};

/// The order of rows in one of the tensors of `weight`.
RotaryRows rows_of(const GgufWeight& weight);

}  // namespace qtrain
