#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qtrain::bench {

/// The groups of kernels that a training step is summed by, in table order.
const std::vector<std::string_view>& step_groups();

/// The group of a launch, by the name of its kernel (GPU) or op (CPU). GEMMs of an adapter are recognized by their
/// sizes: their smallest dimension is a multiple of its rank. `detail`: sizes_of(GemmKey). `adapter_rank`: 0 without an
/// adapter.
std::string_view step_group(std::string_view name, std::string_view detail, std::int64_t adapter_rank);

/// The group for time in which no kernel runs.
inline constexpr std::string_view kGaps = "gaps";

}  // namespace qtrain::bench
