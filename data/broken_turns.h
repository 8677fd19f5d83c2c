#pragma once
#include <string>

#include "data/row_shapes.h"

namespace qtrain {

/// Why LLaMA-Factory excludes a conversation from supervised training; "" if it does not. After an optional system
/// message, questions (or tool results) and answers must alternate.
std::string broken_turns(const Sample& sample);

}  // namespace qtrain
