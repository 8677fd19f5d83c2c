#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qtrain::bench {

/// The parts of a training step that its kernels are summed by, in the order of tables.
const std::vector<std::string_view>& step_groups();

/// The part of a launch by its name, as kernels (GPU) or ops (processor) have it. GEMMs of an adapter are told by their
/// sizes: the smallest of them comes of its rank. `detail`: sizes_of(GemmKey). `adapter_rank`: 0 without one.
std::string_view step_group(std::string_view name, std::string_view detail, std::int64_t adapter_rank);

/// Where the time goes that no kernel takes.
inline constexpr std::string_view kGaps = "gaps";

}  // namespace qtrain::bench
