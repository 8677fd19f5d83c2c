#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "app/reproduction/relocation.h"

namespace qtrain {

/// A sealed folder, and what came of doing its steps again.
struct RedoneState {
  std::filesystem::path sealed, again;
  const Renames& renames;  ///< of files that were moved since
};

/// What of the sealed files is not what came of doing their steps again, each beginning with the name of its file;
/// empty: nothing. Files are compared byte by byte; documents that hold times, speeds or paths without those, but they
/// have to be written as this program writes them.
std::vector<std::string> differences(const RedoneState& state);

/// Where two documents differ first, "a.b: 1 was sealed, and 2 comes of the steps"; empty: nowhere.
std::string first_difference(const Json& sealed, const Json& again);

}  // namespace qtrain
