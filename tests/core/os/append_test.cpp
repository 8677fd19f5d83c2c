#include "core/os/append.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include "core/error.h"
#include "core/os/file.h"
#include "tests/core/temp_folder.h"

namespace qtrain {
namespace {

/// Lets files of this process grow to that size only, as if the disk were full then.
class SmallDisk {
 public:
  explicit SmallDisk(rlim_t bytes) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit small{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  ~SmallDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST(Append, KeepsNoPartOfATextThatDoesNotFit) {
  testing::TempFolder folder;
  const std::filesystem::path file = folder / "rows.jsonl";
  struct Case {
    std::string before;
    rlim_t disk;
    bool fits;
  };
  const std::string row(100, 'r');
  for (const Case& c : {Case{"first\n", 4096, true}, {"first\n", 50, false}, {"", 50, false}, {"first\n", 6, false}}) {
    write_file(file, c.before);
    bool failed = false;
    {
      const SmallDisk disk(c.disk);
      try {
        append_text(file, row);
      } catch (const Error& e) {
        failed = e.kind() == ErrorKind::disk;
      }
    }
    EXPECT_EQ(failed, !c.fits);
    EXPECT_EQ(read_text(file, 4096), c.before + (c.fits ? row : ""));
  }
}

}  // namespace
}  // namespace qtrain
