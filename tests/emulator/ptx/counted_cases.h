#pragma once
#include <vector>

#include "bench/cases/cases.h"

/// What is counted by kernel_counts_test.cpp.
namespace qtrain::testing {

/// The forward and the backward pass for two query heads of a key head, over a long document and a short one.
std::vector<bench::Case> attention_of(std::int64_t width);

/// The three GEMMs of experts with 70, 0, and 58 tokens: y = x W^T, dx = dy W, dW = dy^T x.
std::vector<bench::Case> grouped_gemms();

/// The cases of `qtrain bench` in sizes that take milliseconds, without those of the GEMM library and of the host.
std::vector<bench::Case> all_counted_cases();

}  // namespace qtrain::testing
