#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/formats/json.h"

namespace qtrain {

/// Where files of a run lie now: where they were, or moved together with its output directory.
class Relocation {
 public:
  Relocation() = default;
  /// The output directory when the run began, and now, both in full.
  Relocation(std::filesystem::path was, std::filesystem::path is);

  struct Move {
    std::filesystem::path was, is;  ///< in full
    std::optional<std::filesystem::path> now(const std::filesystem::path& full) const;
  };
  /// Takes it from who knows that a file or folder lies elsewhere, whatever lies now where it was.
  void add(Move move) { named_.push_back(std::move(move)); }

  /// The path now of a file or folder that had this full path: the same where it is still there, or lies nowhere else.
  std::filesystem::path now(const std::filesystem::path& full) const;
  /// A name as a config has it, about `folder`: itself, or in full where the file was moved. Globs too.
  std::string name_now(const std::string& name, const std::filesystem::path& folder) const;

 private:
  std::filesystem::path was_, is_;  ///< what of the two paths differs: the folders that were moved
  std::vector<Move> named_;
};

/// Names that a document has now, and what they were.
using Renames = std::map<std::string, std::string>;

/// The document with all texts that are such names as they were.
Json with_former_names(Json document, const Renames& renames);

/// {path: value} with paths of files, in their order, below the folders that had other names.
Json with_former_files(const Json& files, const Renames& renames);

/// Puts names of files that were moved into `document`, which has names about `folder`, and returns them.
Renames rename_moved(Json& document, const Relocation& places, const std::filesystem::path& folder);

}  // namespace qtrain
