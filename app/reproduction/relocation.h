#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/formats/json.h"

namespace qtrain {

/// Finds the files of a run: in their original place, or moved together with its output directory.
class Relocation {
 public:
  Relocation() = default;
  /// The output directory at the start of the run and now, both as absolute paths.
  Relocation(std::filesystem::path was, std::filesystem::path is);

  struct Move {
    std::filesystem::path was, is;  ///< absolute paths
    std::optional<std::filesystem::path> now(const std::filesystem::path& full) const;
  };
  /// Adds a move given by the user. It applies even if something exists at the old place now.
  void add(Move move) { named_.push_back(std::move(move)); }

  /// The present path of a file or folder that had this absolute path. Returns the same path if it still exists or was
  /// not found elsewhere.
  std::filesystem::path now(const std::filesystem::path& full) const;
  /// A name in a config, relative to `folder`: unchanged, or the absolute path if the file was moved. Also for globs.
  std::string name_now(const std::string& name, const std::filesystem::path& folder) const;

 private:
  std::filesystem::path was_, is_;  ///< the parts in which the two paths differ: the moved folders
  std::vector<Move> named_;
};

/// Present names in a document -> original names.
using Renames = std::map<std::string, std::string>;

/// The document with all such names replaced by the original ones.
Json with_former_names(Json document, const Renames& renames);

/// {path: value} with the original folder names in the paths, in order.
Json with_former_files(const Json& files, const Renames& renames);

/// Replaces names of moved files in `document`, whose names are relative to `folder`, and returns the replacements.
Renames rename_moved(Json& document, const Relocation& places, const std::filesystem::path& folder);

}  // namespace qtrain
