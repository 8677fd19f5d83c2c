#include "core/os/output_place.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>

#include "core/error.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxLinks = 40;  // as many as Linux follows

/// Whether the links in a folder lead directly to files that a process has open, so that their text is not a path.
bool has_magic_links(const fs::path& folder) {
  std::error_code ignored;
  const fs::path full = fs::canonical(folder, ignored);
  return full.string().starts_with("/proc/");
}

fs::path folder_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

/// The mode of a file, or 0 if there is none. Fails for a link that the kernel refuses to follow, such as another
/// user's in a shared folder (fs.protected_symlinks).
mode_t mode_of(const fs::path& file) {
  struct stat info {};
  if (::stat(file.c_str(), &info) == 0) return info.st_mode;
  if (errno != ENOENT && errno != ENOTDIR) fail_write(file, "opening", errno);
  return 0;
}

}  // namespace

void fail_write(const fs::path& file, std::string_view action, int error) {
  if (error == EFAULT)  // what is written is that of a mapped file
    fail(ErrorKind::input, {.cause = "a file that is read for this one became shorter meanwhile, or its disk failed",
                            .place = file.string(),
                            .remedy = "run the same command again, and leave its files as they are meanwhile"});
  fail(ErrorKind::disk, {.cause = fmt::format("{} failed: {}", action, std::generic_category().message(error)),
                         .place = file.string(),
                         .remedy = error == ENOSPC || error == EDQUOT ? "free some space and run again" : ""});
}

OutputPlace output_place(const fs::path& file) {
  const mode_t mode = mode_of(file);
  if (S_ISDIR(mode)) fail_write(file, "writing", EISDIR);
  if (S_ISSOCK(mode)) fail(ErrorKind::disk, {.cause = "is a socket, which cannot be written", .place = file.string()});
  if (mode != 0 && !S_ISREG(mode)) return {file, WriteMode::in_place};
  const fs::path target = behind_links(file);
  return target.empty() ? OutputPlace{file, WriteMode::in_place} : OutputPlace{target, WriteMode::replaced};
}

fs::path behind_links(const fs::path& path) {
  fs::path at = path;
  for (int links = 0; links < kMaxLinks; ++links) {
    std::error_code no_link;
    const fs::path to = fs::read_symlink(at, no_link);
    if (no_link) return at;
    if (has_magic_links(folder_of(at))) return {};
    at = folder_of(at) / to;
  }
  fail_write(path, "opening", ELOOP);
}

}  // namespace qtrain
