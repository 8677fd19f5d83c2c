#pragma once
#include <string>

#include "data/shapes.h"

namespace qtrain {

/// Why LLaMA-Factory leaves a conversation out of supervised training, in words; "" if it does not: its turns, behind a
/// system message, are not a question or the results of tools and an answer, by turns.
std::string broken_turns(const Sample& sample);

}  // namespace qtrain
