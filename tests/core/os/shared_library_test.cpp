#include "core/os/shared_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "core/os/file.h"
#include "tests/core/temp_folder.h"

namespace qtrain::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* kName = "libqtrain_test_library.so.1";

class SharedLibraries : public ::testing::Test {
 protected:
  /// Creates a library file in a package of a site-packages folder.
  fs::path put(const std::string& site_packages, const std::string& package) {
    const fs::path file = folder_ / site_packages / "nvidia" / package / "lib" / kName;
    fs::create_directories(file.parent_path());
    write_file(file, "no library");
    return file;
  }
  TempFolder folder_;
};

TEST_F(SharedLibraries, OfTheWheelComeBeforeThoseOfAnEnvironment) {
  const fs::path older = put("own/lib/python3.11/site-packages", "cu12"),
                 newer = put("own/lib/python3.11/site-packages", "cu13");
  const fs::path other = put("venv/lib/python3.12/site-packages", "cublas");
  // A folder with the name of the library does not count.
  fs::create_directories(folder_ / "venv/lib/python3.12/site-packages/nvidia/cu13/lib" / kName);
  put("venv/lib/elsewhere/site-packages", "cublas");
  const fs::path program = folder_ / "own/lib/python3.11/site-packages/qtrain/bin/qtrain";
  EXPECT_THAT(shared_library_places({kName, program, {folder_ / "missing", folder_ / "venv"}}),
              ElementsAre(newer, older, other));
  EXPECT_THAT(shared_library_places({kName, folder_ / "own/lib/python3.11/bin/qtrain"}), IsEmpty());
}

TEST_F(SharedLibraries, AreOpenedInTheActiveEnvironment) {
  const SharedLibrary none = open_shared_library(kName);
  EXPECT_EQ(none.handle, nullptr);
  EXPECT_THAT(none.problem, HasSubstr(kName));
  EXPECT_THAT(none.problem, Not(HasSubstr("site-packages")));
  const SharedLibrary zlib = open_shared_library("libz.so.1");
  ASSERT_NE(zlib.handle, nullptr) << zlib.problem;
  const fs::path file = put("lib/python3.11/site-packages", "cu13");
  fs::copy_file(zlib.file, file, fs::copy_options::overwrite_existing);
  ::setenv("VIRTUAL_ENV", folder_.path().c_str(), 1);
  const SharedLibrary found = open_shared_library(kName);
  ::unsetenv("VIRTUAL_ENV");
  ASSERT_NE(found.handle, nullptr) << found.problem;
  EXPECT_EQ(found.file, file.string());
  EXPECT_THAT(found.problem, IsEmpty());
}

}  // namespace
}  // namespace qtrain::testing
