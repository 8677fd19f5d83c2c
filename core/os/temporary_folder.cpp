#include "core/os/temporary_folder.h"

#include <cstdlib>
#include <string>
#include <system_error>

#include "core/error.h"

namespace qtrain {

TemporaryFolder::TemporaryFolder(const std::filesystem::path& parent, std::string_view prefix,
                                 std::string_view remedy) {
  std::string name = (parent / (std::string(prefix) + "XXXXXX")).string();
  if (::mkdtemp(name.data()) == nullptr)
    fail(ErrorKind::disk, {.cause = "cannot create a temporary folder: " + std::generic_category().message(errno),
                           .place = parent.string(),
                           .remedy = std::string(remedy)});
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace qtrain
