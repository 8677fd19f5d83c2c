#pragma once
#include "app/cli/arguments.h"

namespace qtrain {

/// `qtrain bench step [CASE|CONFIG.json [key=value ...]]`: where the time of a training step goes, kernel by kernel,
/// for a case of bench/step_cases.json with random weights and rows, or for a config.
int run_bench_step(const Arguments& arguments);

}  // namespace qtrain
