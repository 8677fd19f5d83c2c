#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/formats/json.h"
#include "data/source/data_source.h"
#include "data/source/mix_strategy.h"
#include "data/source/raw_rows.h"

namespace qtrain {

struct MixRules {
  MixStrategy strategy = MixStrategy::concatenate;
  std::vector<double> probabilities;  ///< per source; empty: round-robin
  std::uint64_t seed = 42;            ///< for the choice by probability
};

/// The order of rows from the concatenated sources, which have these sizes. Throws ErrorKind::usage for probabilities
/// that are negative, all zero or not one per source, and for an empty source.
std::vector<std::int64_t> mixed_order(const std::vector<std::int64_t>& sizes, const MixRules& rules);

/// Number of rows of each source in the largest mixture with these fractions that repeats no row, as TRL's `fraction`:
/// takes the first round(fraction * total) rows.
std::vector<std::int64_t> fraction_sizes(const std::vector<std::int64_t>& sizes, const std::vector<double>& fractions);

using SourceFiles = std::vector<std::vector<std::filesystem::path>>;
/// The files of each source, or of each of its splits; `split` applies to sources without splits. Throws as
/// resolve_data_files does.
SourceFiles source_files(const std::vector<DataSource>& sources, Split split);

/// The rows of each source from its files, with our column names. Throws as RawRows does.
std::vector<RawRows> source_rows(const std::vector<DataSource>& sources, const SourceFiles& files);

/// The part of a source's rows that its `share` chooses, as alignment-handbook does with datasets: the first
/// int(share * n) rows of Dataset.shuffle(share_seed). Throws ErrorKind::usage if there are none.
RawRows chosen_share(const DataSource& source, RawRows rows);

struct MixRequest {
  const std::vector<DataSource>& sources;
  std::optional<MixStrategy> strategy;  ///< none: interleave if the sources have weights, else concatenate
  std::uint64_t seed = 42;
};
/// Mixes the rows of all sources; `parts` are the rows of each. Throws as mixed_order does.
RawRows mixed_rows(std::vector<RawRows> parts, const MixRequest& request);

}  // namespace qtrain
