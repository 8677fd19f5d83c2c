#include "core/os/output_place.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <future>

#include "core/os/descriptor.h"
#include "core/os/file.h"
#include "core/os/stop.h"
#include "tests/core/temp_folder.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

using qtrain::testing::error_of;
using qtrain::testing::TempFolder;
using ::testing::HasSubstr;

mode_t mode_of(const fs::path& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 ? info.st_mode : 0;
}

struct Written : ::testing::Test {
  TempFolder folder;
};

TEST_F(Written, WhatALinkLeadsToIsWrittenAndTheLinkStays) {
  fs::create_directories(folder / "a/b");
  fs::create_directory_symlink("a/b", folder / "folder");
  write_file(folder / "a/file", "old");
  struct Link {
    const char *name, *to, *written;
  };
  for (const auto& [name, to, written] :
       {Link{"link", "a/file", "a/file"}, Link{"link_of_link", "link", "a/file"}, Link{"dangling", "a/new", "a/new"},
        Link{"deep", "folder/c", "a/b/c"}, Link{"a/up", "../top", "top"}}) {
    SCOPED_TRACE(name);
    fs::create_symlink(to, folder / name);
    write_file(folder / name, name);
    EXPECT_TRUE(fs::is_symlink(folder / name));
    EXPECT_TRUE(S_ISREG(mode_of(folder / written)));
    EXPECT_EQ(read_text(folder / written), name);
    EXPECT_EQ(output_place(folder / name).mode, WriteMode::replaced);
  }
}

TEST_F(Written, AFifoGetsTheBytesAndStays) {
  const fs::path fifo = folder / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  fs::create_symlink("fifo", folder / "link");
  for (const fs::path& path : {fifo, folder / "link"}) {
    const std::string text(300'000, 'x');  // more than a pipe holds
    auto written = std::async(std::launch::async, [&] { write_file(path, text); });
    EXPECT_EQ(written.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout) << "nobody reads yet";
    std::string read;
    {
      const Descriptor in(::open(fifo.c_str(), O_RDONLY | O_CLOEXEC));
      char part[4096];
      for (ssize_t n = 0; (n = ::read(in.get(), part, sizeof part)) > 0;)
        read.append(part, static_cast<std::size_t>(n));
    }
    written.get();
    EXPECT_TRUE(read == text);
    EXPECT_TRUE(S_ISFIFO(mode_of(fifo)));
  }
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
}

TEST_F(Written, AStopEndsTheWaitForAReader) {
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  set_stop_requested(true);
  const auto error = error_of([&] { write_file(folder / "fifo", "text"); });
  set_stop_requested(false);
  EXPECT_EQ(error.kind(), ErrorKind::stopped);
}

TEST_F(Written, DevicesAreWrittenInPlace) {
  write_file("/dev/null", "text");
  EXPECT_TRUE(S_ISCHR(mode_of("/dev/null")));
  fs::create_symlink("/dev/full", folder / "full");
  const auto error = error_of([&] { write_file(folder / "full", "text"); });
  EXPECT_EQ(error.kind(), ErrorKind::disk);
  EXPECT_THAT(error.what(), HasSubstr("No space left"));
  EXPECT_TRUE(fs::is_symlink(folder / "full"));
}

TEST_F(Written, OpenDescriptorsAreWrittenInPlace) {
  const Descriptor file(::open((folder / "x").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::write(file.get(), "before ", 7), 7);
  write_file("/proc/self/fd/" + std::to_string(file.get()), "after");
  EXPECT_EQ(read_text(folder / "x"), "before after");
}

TEST_F(Written, WhatIsNoPlaceForAFileIsRefused) {
  fs::create_symlink("loop_b", folder / "loop_a");
  fs::create_symlink("loop_a", folder / "loop_b");
  fs::create_directory(folder / "folder");
  fs::create_directory_symlink("folder", folder / "folder_link");
  const Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  (folder / "socket").string().copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  for (const auto& [name, why] : {std::pair("loop_a", "Too many levels"), std::pair("folder", "Is a directory"),
                                  std::pair("folder_link", "Is a directory"), std::pair("socket", "is a socket")}) {
    SCOPED_TRACE(name);
    const mode_t before = mode_of(folder / name);
    const auto error = error_of([&, file = folder / name] { write_file(file, "text"); });
    EXPECT_EQ(error.kind(), ErrorKind::disk);
    EXPECT_THAT(error.what(), HasSubstr(why));
    EXPECT_EQ(mode_of(folder / name), before);
  }
}

TEST_F(Written, AFileThatOnlyItsOwnerReadsStaysOne) {
  write_file(folder / "x", "old");
  ASSERT_EQ(::chmod((folder / "x").c_str(), 0600), 0);
  write_file(folder / "x", "new");
  EXPECT_EQ(mode_of(folder / "x") & 0777, 0600u);
}

TEST_F(Written, WhatBecomesSomethingElseMeanwhileStays) {
  const auto error = error_of(
      [&] { write_file(folder / "x", [&](const auto&) { ASSERT_EQ(::mkfifo((folder / "x").c_str(), 0600), 0); }); });
  EXPECT_EQ(error.kind(), ErrorKind::disk);
  EXPECT_TRUE(S_ISFIFO(mode_of(folder / "x")));
}

}  // namespace
}  // namespace qtrain
