// Results that take long to write, and names that are taken meanwhile.
#include "core/os/slow_result.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "core/error.h"
#include "core/os/file.h"
#include "tests/core/temp_folder.h"
#include "tests/errors.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

class SlowResults : public ::testing::Test {
 protected:
  static void produce(const std::function<void(std::span<const std::byte>)>& append) {
    append(std::as_bytes(std::span(std::string_view("ours"))));
  }
  testing::TempFolder folder_;
};

TEST_F(SlowResults, GetTheNameThatIsFreeInTheEnd) {
  const fs::path file = folder_ / "result", other = folder_ / "result.2";
  const auto name_now = [&](const fs::path& asked) {
    EXPECT_EQ(asked, file);
    return fs::exists(file) ? other : asked;
  };
  EXPECT_EQ(write_result(SlowResult{file, name_now}, produce), file);
  EXPECT_EQ(read_text(file), "ours");
  fs::remove(file);
  EXPECT_EQ(write_result(SlowResult{file, name_now},
                         [&](const auto& append) {
                           produce(append);
                           std::ofstream(file) << "theirs";
                         }),
            other);
  EXPECT_EQ(read_text(file), "theirs");
  EXPECT_EQ(read_text(other), "ours");
}

TEST_F(SlowResults, MayHaveTheLongestNames) {
  for (const std::size_t size : {std::size_t{230}, std::size_t{231}, std::size_t{255}}) {
    const fs::path file = folder_ / std::string(size, 'x');
    EXPECT_EQ(write_result(SlowResult{file}, produce), file);
    EXPECT_EQ(read_text(file), "ours");
  }
}

// Its target is what is replaced.
TEST_F(SlowResults, AreAskedAboutTheTargetOfALink) {
  const fs::path link = folder_ / "link", file = folder_ / "file";
  fs::create_symlink("file", link);
  EXPECT_EQ(
      write_result(SlowResult{link, [&](const fs::path& asked) { return asked == file ? asked : folder_ / "wrong"; }},
                   produce),
      link);
  EXPECT_EQ(read_text(file), "ours");
}

TEST_F(SlowResults, DoNotReplaceWhatHasBecomeNoFile) {
  const fs::path file = folder_ / "result";
  EXPECT_EQ(testing::error_of([&] {
              write_result(SlowResult{file}, [&](const auto& append) {
                produce(append);
                ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
              });
            }).kind(),
            ErrorKind::disk);
  EXPECT_TRUE(fs::is_fifo(file));
}

}  // namespace
}  // namespace qtrain
