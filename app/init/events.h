#pragma once
#include <cstdint>

#include "app/init/choices.h"

namespace qtrain::init {

struct RunFacts {
  bool evaluates = false;    ///< there are rows for it
  std::int64_t updates = 0;  ///< of the whole run
};

/// Chooses how often the model is evaluated and saved, and whether the best checkpoint is the result, around the values
/// that the command line gives.
void choose_intervals(Choices& choices, const RunFacts& run);

}  // namespace qtrain::init
