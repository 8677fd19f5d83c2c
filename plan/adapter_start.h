#pragma once
#include <optional>
#include <string>

#include "model/transformer.h"

namespace qtrain {

/// What the decompositions of base weights that a new adapter starts from (LoraInit) take before the first step on
/// `threads` threads, if that is worth saying.
std::optional<std::string> remark_on_start(const Transformer& model, int threads);

}  // namespace qtrain
