#include "app/cli/line_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <memory>

#include "core/os/file.h"
#include "tests/core/temp_folder.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongest = 10;
constexpr const char* kFirst = "_HiStOrY_V2_\n";

mode_t mode_of(const fs::path& file) {
  struct stat about {};
  EXPECT_EQ(::lstat(file.c_str(), &about), 0);
  return about.st_mode;
}

/// The lines that libedit recalls, the newest first.
std::vector<std::string> recalled(const LineHistory& kept) {
  const std::unique_ptr<History, void (*)(History*)> lines(history_init(), history_end);
  HistEvent event{};
  history(lines.get(), &event, H_SETSIZE, 1000);
  kept.load(lines.get());
  std::vector<std::string> out;
  for (int found = history(lines.get(), &event, H_FIRST); found >= 0; found = history(lines.get(), &event, H_NEXT))
    out.emplace_back(event.str);
  return out;
}

class LineHistoryFile : public ::testing::Test {
 protected:
  testing::TempFolder folder_;
  const fs::path file_ = folder_ / "history";
};

TEST_F(LineHistoryFile, KeepsLinesForTheirUserOnly) {
  const std::vector<std::string> lines{"hello you", "tab\tand \\ backslash", "gr\xc3\xbc\xc3\x9f", "\x1b[31m"};
  const LineHistory kept(file_, kLongest);
  for (const std::string& line : lines) kept.remember(line);
  EXPECT_THAT(recalled(LineHistory(file_, kLongest)), ::testing::ElementsAreArray(lines.rbegin(), lines.rend()));
  EXPECT_EQ(mode_of(file_) & 0777, 0600u);
}

TEST_F(LineHistoryFile, RestrictsAnOlderOneToItsUser) {
  write_file(file_, std::string(kFirst) + "old\\040line\n");
  fs::permissions(file_, fs::perms(0644));
  EXPECT_THAT(recalled(LineHistory(file_, kLongest)), ::testing::ElementsAre("old line"));
  EXPECT_EQ(mode_of(file_) & 0777, 0600u);
}

TEST_F(LineHistoryFile, HasTheLinesOfAllSessions) {
  const LineHistory one(file_, kLongest), two(file_, kLongest);
  one.remember("1");
  two.remember("2");
  one.remember("3");
  EXPECT_THAT(recalled(one), ::testing::ElementsAre("3", "2", "1"));
}

TEST_F(LineHistoryFile, IsMadeAgainIfItWasDeletedOrEmptied) {
  const LineHistory kept(file_, kLongest);
  for (const bool deleted : {true, false}) {
    SCOPED_TRACE(deleted);
    kept.remember("before");
    deleted ? fs::remove(file_) : (write_file(file_, ""), true);
    kept.remember("after");
    EXPECT_EQ(mode_of(file_) & 0777, 0600u);
    EXPECT_THAT(recalled(LineHistory(file_, kLongest)), ::testing::ElementsAre("after"));
  }
  fs::remove(file_);
  write_file(file_, "of another program\n");
  kept.remember("hello");
  EXPECT_EQ(read_text(file_, 100), "of another program\n");
}

/// As a user for whom modes of files hold, which they do not for root.
class AsUser {
 public:
  explicit AsUser(const fs::path& folder) {
    constexpr uid_t kNobody = 65534;
    if (root_ && (::chown(folder.c_str(), kNobody, static_cast<gid_t>(-1)) != 0 || ::seteuid(kNobody) != 0))
      ADD_FAILURE() << "cannot become another user";
  }
  ~AsUser() {
    if (root_ && ::seteuid(0) != 0) ADD_FAILURE() << "cannot become root again";
  }
  AsUser(const AsUser&) = delete;
  AsUser& operator=(const AsUser&) = delete;

 private:
  const bool root_ = ::geteuid() == 0;
};

TEST_F(LineHistoryFile, IsReadEvenIfItCannotBeWritten) {
  const AsUser user(folder_.path());
  const std::string text = std::string(kFirst) + "old\n";
  for (const mode_t folder_mode : {0700, 0500}) {
    write_file(file_, text);
    fs::permissions(file_, fs::perms(0400));
    fs::permissions(folder_.path(), fs::perms(folder_mode));
    const LineHistory kept(file_, kLongest);
    kept.remember("new");
    EXPECT_THAT(recalled(kept), ::testing::ElementsAre("old"));
    EXPECT_EQ(read_text(file_, 100), text);
    EXPECT_EQ(mode_of(file_) & 0777, 0400u);
    fs::permissions(folder_.path(), fs::perms(0700));
  }
}

TEST_F(LineHistoryFile, IsShortenedToTheLastLines) {
  std::string text = kFirst;
  for (int i = 0; i < 50; ++i) text += std::to_string(i) + "\n";
  write_file(file_, text);
  const fs::path link = folder_ / "link";
  fs::create_symlink(file_, link);
  const std::vector<std::string> last = recalled(LineHistory(link, kLongest));
  EXPECT_EQ(last.size(), kLongest);
  EXPECT_EQ(last.front(), "49");
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(mode_of(file_) & 0777, 0600u);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), {}), 2);
}

TEST_F(LineHistoryFile, LeavesAloneWhatIsNone) {
  write_file(folder_ / "mine", "precious\n");
  fs::permissions(folder_ / "mine", fs::perms(0640));
  ASSERT_EQ(::mkfifo((folder_ / "fifo").c_str(), 0640), 0);
  fs::create_directory(folder_ / "folder");
  std::vector<fs::path> others{folder_ / "mine", folder_ / "fifo", folder_ / "folder"};
  if (::mknod((folder_ / "null").c_str(), S_IFCHR | 0666, ::makedev(1, 3)) == 0) others.push_back(folder_ / "null");
  for (const fs::path& other : others) {
    fs::create_symlink(other, file_);
    const mode_t before = mode_of(other);
    const LineHistory kept(file_, kLongest);
    kept.remember("hello");
    EXPECT_TRUE(recalled(kept).empty()) << other;
    EXPECT_EQ(mode_of(other), before) << other;
    fs::remove(file_);
  }
  EXPECT_EQ(read_text(folder_ / "mine", 100), "precious\n");
}

}  // namespace
}  // namespace qtrain
