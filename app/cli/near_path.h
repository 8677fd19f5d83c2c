#pragma once
#include "core/error.h"

namespace qtrain {

/// The same error; where its place is a path that is not there and something of almost the same name is, its remedy
/// asks whether that was meant. Of checkpoints, whose numbers say nothing of each other, it tells which ones there are.
Error with_near_path(const Error& error);

}  // namespace qtrain
