#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace qtrain {

/// Bytes of the longest piece of a sentencepiece vocabulary that is cut into pairs: the work grows with the square.
inline constexpr std::size_t kLongestPiece = 1024;

/// What a GGUF file and a config.json both say about a model.
struct GgufModel {
  std::string architecture;  ///< GGUF's: llama, qwen2, qwen3
  std::int64_t hidden = 0, ffn = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, vocab = 0, context = 0;
  std::int64_t sliding_window = 0;  ///< 0: none
  bool tied = false;
  bool attention_bias = false;  ///< also of the output projection; qwen2 has the others without it
};

/// A tensor of a model under both its names.
struct GgufWeight {
  std::string gguf, name;           ///< "blk.0.attn_q.weight", "model.layers.0.self_attn.q_proj.weight"
  std::vector<std::int64_t> shape;  ///< of a Hugging Face folder: [rows, columns] or [values]
  /// Above 0: the rows lie in interleaved rotary order within that many heads, as GGUF keeps the query and key
  /// projections of the llama architecture.
  std::int64_t rotary_heads = 0;
};

/// Every weight of the model in its order. Source: llama.cpp's tensor names (gguf-py's constants.py).
std::vector<GgufWeight> gguf_layout(const GgufModel& model);

/// Rows of a matrix in GGUF's interleaved order and in Hugging Face's. Within a head of d rows, element
/// (half j, pair i) is row j d/2 + i for Hugging Face and row 2 i + j in GGUF.
struct RotaryRows {
  std::int64_t head_dim = 0;  ///< 0: both orders are the same

  std::int64_t in_gguf(std::int64_t hf_row) const;
  std::int64_t in_hf(std::int64_t gguf_row) const;
};

}  // namespace qtrain
