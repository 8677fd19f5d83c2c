#include "core/os/paths.h"

#include <cerrno>
#include <string>
#include <system_error>

#include "core/os/output_place.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

fs::file_status status_of(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::none)
    fail(ErrorKind::input, {.cause = "cannot be read: " + error.message(), .place = path.string()});
  return status;
}

bool is_write_error(const std::error_code& error) {
  return error == std::errc::no_space_on_device || error == std::errc::read_only_file_system ||
         error == std::error_code(EDQUOT, std::generic_category());
}

}  // namespace

bool path_exists(const fs::path& path) {
  return fs::exists(status_of(path));
}

bool is_folder(const fs::path& path) {
  return fs::is_directory(status_of(path));
}

bool is_plain_file(const fs::path& path) {
  return fs::is_regular_file(status_of(path));
}

fs::path absolute_path(const fs::path& path) {
  std::error_code error;
  const fs::path whole = fs::absolute(path.empty() ? fs::path(".") : path, error);
  if (error) fail(ErrorKind::input, {.cause = "has no absolute path: " + error.message(), .place = path.string()});
  return whole.lexically_normal();
}

fs::path real_path(const fs::path& path) {
  std::error_code error;
  const fs::path whole = fs::absolute(path, error);
  const fs::path real = error ? whole : fs::weakly_canonical(whole, error);
  return error ? absolute_path(path) : real.has_filename() ? real : real.parent_path();
}

void create_folders(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail_write(folder, "creating the folder", error.value());
}

Error path_error(const fs::filesystem_error& error) {
  const std::error_code code = error.code();
  const bool writing = is_write_error(code);
  return {writing ? ErrorKind::disk : ErrorKind::input,
          {.cause = (writing ? "cannot be written: " : "cannot be accessed: ") + code.message(),
           .place = error.path1().string(),
           .remedy = "check the path and the permissions"}};
}

}  // namespace qtrain
