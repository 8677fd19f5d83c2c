#pragma once
#include <cstddef>
#include <span>

#include "core/formats/gguf.h"

namespace qtrain {

/// Whether `dequantize_gguf` supports the type: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K and Q6_K.
bool can_dequantize(GgufType type);

/// Expands whole blocks to f32, bitwise equal to gguf-py's `dequantize`.
/// `blocks`: a multiple of the type's block size in bytes; `out`: exactly the values they hold.
/// Throws an input error for an unsupported type, and an internal error if the sizes do not fit.
/// Source: the block layouts of ggml (ggml-common.h).
void dequantize_gguf(GgufType type, std::span<const std::byte> blocks, std::span<float> out);

}  // namespace qtrain
