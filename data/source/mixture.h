#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/formats/json.h"
#include "data/source/data_source.h"
#include "data/source/mix_strategy.h"
#include "data/source/reader.h"

namespace qtrain {

struct MixRules {
  MixStrategy strategy = MixStrategy::concatenate;
  std::vector<double> probabilities;  ///< of each source; empty: they take turns
  std::uint64_t seed = 42;            ///< of the choice by probability
};

/// Which rows of the concatenated sources come in which order, for sources of these sizes.
/// Errors (ErrorKind::usage): probabilities that are negative, all zero or not one for each source; an empty source.
std::vector<std::int64_t> mixed_order(const std::vector<std::int64_t>& sizes, const MixRules& rules);

/// How many rows of each source make up the largest mixture with these shares that needs no row twice, as TRL's
/// `fraction`: the first round(share * total) ones.
std::vector<std::int64_t> fraction_sizes(const std::vector<std::int64_t>& sizes, const std::vector<double>& fractions);

using SourceFiles = std::vector<std::vector<std::filesystem::path>>;
/// The files of each source, or of each of its splits; `split` for those that do not say. Errors as of
/// resolve_data_files.
SourceFiles source_files(const std::vector<DataSource>& sources, Split split);

/// The rows of each source, in its files, under the names that the program looks for. Errors as of RawRows.
std::vector<RawRows> source_rows(const std::vector<DataSource>& sources, const SourceFiles& files);

struct MixRequest {
  const std::vector<DataSource>& sources;
  std::optional<MixStrategy> strategy;  ///< none: interleaved if the sources have weights
  std::uint64_t seed = 42;
};
/// The rows of all sources as one: `parts` are those of each. Errors as of mixed_order.
RawRows mixed_rows(std::vector<RawRows> parts, const MixRequest& request);

}  // namespace qtrain
