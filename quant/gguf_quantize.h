#pragma once
#include <cstddef>
#include <span>

#include "core/formats/gguf.h"

namespace qtrain {

/// Packs f32 into whole blocks: F32, F16, BF16, Q8_0, Q4_0 and Q5_0 bitwise equal to gguf-py's `quantize`; Q4_K by a
/// weighted least-squares fit of scale and minimum to every 32 values, as in llama.cpp.
/// `values`: a multiple of the type's block size; `blocks`: exactly the bytes they take.
/// Values that are not finite, or that need a scale beyond float16, give meaningless blocks: check them first.
/// Throws an internal error for an unsupported type, and if the sizes do not fit.
void quantize_gguf(GgufType type, std::span<const float> values, std::span<std::byte> blocks);

}  // namespace qtrain
