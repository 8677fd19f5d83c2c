#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "app/reproduction/relocation.h"

namespace qtrain {

/// A sealed folder and the result of repeating its steps.
struct RedoneState {
  std::filesystem::path sealed, again;
  const Renames& renames;   ///< new names of files that were moved since
  bool is_pending = false;  ///< whether the checkpoint was saved before an evaluation that was due
};

/// The result of comparing sealed files.
struct ComparedState {
  std::vector<std::string> differences;       ///< each starts with the name of its file; empty: none
  std::map<std::string, std::string> sha256;  ///< SHA-256 of the compared bytes, by file name
};

/// Compares sealed files with the result of repeating their steps. Files are compared byte by byte; documents with
/// times, speeds or paths are compared without those, but must be formatted as this program writes them.
ComparedState compare(const RedoneState& state);

/// The first difference between two documents: its path and both values; empty: none.
std::string first_difference(const Json& sealed, const Json& again);

}  // namespace qtrain
