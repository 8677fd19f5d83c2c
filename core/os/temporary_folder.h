#pragma once
#include <filesystem>
#include <string_view>

namespace qtrain {

/// A new folder that is deleted with this object. Errors: ErrorKind::disk, with `remedy`.
class TemporaryFolder {
 public:
  /// Creates it in `parent`, under a name that begins with `prefix`.
  TemporaryFolder(const std::filesystem::path& parent, std::string_view prefix, std::string_view remedy);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace qtrain
