#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/log.h"
#include "hub/local_contents.h"
#include "hub/upload_api.h"

namespace qtrain {

/// A large file to upload.
struct LargeFile {
  std::string path;  ///< in the repository, for messages
  LargeObject object;
  std::function<LocalContents()> open;
};

struct LargeUpload {
  const UploadPlace& place;
  std::vector<LargeFile> files;        ///< with different contents
  int connections = 4;                 ///< files that are uploaded at the same time
  std::filesystem::path records = {};  ///< folder for UploadRecords; empty: none
};

/// Uploads those of the files that the storage of the hub lacks, and continues uploads in parts that another process
/// has begun. Throws ErrorKind::input with what to do, ErrorKind::stopped after a signal.
void upload_large(const LargeUpload& upload, Log& log);

}  // namespace qtrain
