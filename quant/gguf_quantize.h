#pragma once
#include <cstddef>
#include <span>

#include "core/gguf.h"

namespace qtrain {

/// Packs f32 into whole blocks: F32, F16, BF16, Q8_0, Q4_0 and Q5_0 bit for bit as gguf-py's `quantize`, Q4_K by a
/// weighted least-squares fit of scale and minimum to each 32 values, as llama.cpp chooses them.
/// `values`: a multiple of the type's block; `blocks`: exactly the bytes they take.
/// Values that are not finite, or that need a scale beyond float16, give blocks without meaning: check them before.
/// Errors: an internal one for another type, and when the sizes do not fit.
void quantize_gguf(GgufType type, std::span<const float> values, std::span<std::byte> blocks);

}  // namespace qtrain
