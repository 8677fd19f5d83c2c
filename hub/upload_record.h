#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "hub/upload_api.h"

namespace qtrain {

/// How far the upload of a large file in parts has come, on disk, so that another process can go on. The addresses in
/// it allow anybody to write these parts until they expire, so only the user may read it.
struct UploadRecord {
  LargeTarget target;
  std::vector<std::string> etags = {};  ///< of each part; empty for one that is still to be sent

  bool is_complete() const;
};

/// The records of one user, a file for each large file and repository. Without a folder, nothing is kept.
class UploadRecords {
 public:
  UploadRecords(std::filesystem::path folder, const UploadPlace& place) : folder_(std::move(folder)), place_(place) {}

  /// None if there is no record of this file, or it is damaged.
  std::optional<UploadRecord> read(const LargeObject& object) const;
  /// A record that cannot be written is none: the upload does not depend on it.
  void write(const UploadRecord& record) const;
  void remove(const std::string& sha256) const;

 private:
  std::filesystem::path file_of(const std::string& sha256) const;

  std::filesystem::path folder_;
  const UploadPlace& place_;
};

}  // namespace qtrain
