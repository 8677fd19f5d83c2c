#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/ptx/counts.h"

/// The table of what kernels execute: bench/baselines/cuda_counts.csv, and docs/kernels/counts.md for readers.
namespace qtrain::testing {

/// All launches of one kernel in a case.
struct CountRow {
  std::string task;  ///< the name of the case: "adamw/65536"
  std::string kernel;
  std::uint64_t launches = 0;
  emulation::ptx::Counts counts = {};

  bool operator==(const CountRow&) const = default;
};
struct CountTable {
  std::string compiler;  ///< "nvcc 13.0.88 for sm_90a"
  std::vector<CountRow> rows = {};

  bool operator==(const CountTable&) const = default;
};

/// Sums launches by kernel, in the order in which the kernels first ran.
std::vector<CountRow> rows_of(const std::string& task, const std::vector<emulation::ptx::CountedLaunch>& launches);

std::string csv_of(const CountTable& table);
CountTable table_of(const std::string& csv);

/// The page with this table in place of its own, which is its end.
std::string with_table(const std::string& page, const CountTable& table);

/// Why the counts `now` are worse than those before: each that grew by more than 3 %, and kernels that are in only
/// one of the tables.
std::vector<std::string> growth(const CountTable& before, const CountTable& now);

/// The compiler of a folder of PTX, as in CountTable.
std::string compiler_of(const std::filesystem::path& folder);

}  // namespace qtrain::testing
