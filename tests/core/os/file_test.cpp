#include "core/os/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>

#include "core/os/pending.h"
#include "tests/core/temp_folder.h"

namespace qtrain {
namespace {

using qtrain::testing::error_of;
using qtrain::testing::TempFolder;
using ::testing::HasSubstr;

std::string contents(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::size_t entries(const std::filesystem::path& folder) {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()));
}

TEST(File, WritesAndReadsWhatItWasGiven) {
  TempFolder folder;
  const std::string text("a\0b\nc", 5);
  write_file(folder / "x", text);
  EXPECT_EQ(contents(folder / "x"), text);
  EXPECT_EQ(read_text(folder / "x"), text);
  EXPECT_EQ(MappedFile(folder / "x").text(), text);
  write_file(folder / "x", "");
  EXPECT_EQ(read_text(folder / "x"), "");
  EXPECT_TRUE(MappedFile(folder / "x").bytes().empty());
  EXPECT_EQ(entries(folder.path()), 1u);
}

TEST(File, ChunksOfAnySizeArriveInOrder) {
  TempFolder folder;
  std::string expected;
  write_file(folder / "x", [&](const auto& append) {
    for (const std::size_t size : {1u, 3u, 700'000u, 700'000u, 0u, 3'000'000u, 5u}) {
      const std::string chunk(size, static_cast<char>('a' + expected.size() % 26));
      expected += chunk;
      append(std::as_bytes(std::span(chunk)));
    }
  });
  EXPECT_TRUE(contents(folder / "x") == expected);
}

TEST(File, AFailedWriteLeavesTheOldFileAlone) {
  TempFolder folder;
  write_file(folder / "x", "old");
  const std::string much(2'000'000, 'n');
  EXPECT_THROW(write_file(folder / "x",
                          [&](const auto& append) {
                            append(std::as_bytes(std::span(much)));
                            throw std::runtime_error("producer");
                          }),
               std::runtime_error);
  EXPECT_EQ(contents(folder / "x"), "old");
  EXPECT_EQ(entries(folder.path()), 1u);
}

/// The id of a process that has ended.
pid_t ended_process() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  return child;
}

TEST(File, WhatEndedProcessesHaveLeftOfItGoes) {
  TempFolder folder;
  const std::string gone = std::to_string(ended_process()), parent = std::to_string(::getppid());
  for (const std::string& name :
       std::vector<std::string>{".x." + gone + ".tmp", ".x." + parent + ".tmp", ".y." + gone + ".tmp",
                                ".x." + gone + ".tmp.txt", ".x.1a.tmp", ".x.tmp"})
    std::ofstream(folder / name) << "left";
  write_file(folder / "x", "text");
  EXPECT_FALSE(std::filesystem::exists(folder / (".x." + gone + ".tmp")));
  EXPECT_EQ(entries(folder.path()), 6u) << "left: those of a running process, of another file, and with other names";
}

TEST(File, WhatIsLockedStays) {
  TempFolder folder;
  const auto left = folder / (".x." + std::to_string(ended_process()) + ".tmp");  // may be from another machine
  const Descriptor file(::open(left.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  lock_pending(file.get());
  write_file(folder / "x", "text");
  EXPECT_TRUE(std::filesystem::exists(left));
}

TEST(File, IsLockedWhileItIsWritten) {
  TempFolder folder;
  write_file(folder / "x", [&](const auto&) {
    const Descriptor file(::open(pending_name(folder / "x").c_str(), O_RDONLY | O_CLOEXEC));
    EXPECT_NE(::flock(file.get(), LOCK_SH | LOCK_NB), 0);
  });
}

TEST(File, ADiskErrorNamesFileAndReason) {
  TempFolder folder;
  const auto missing = error_of([&] { write_file(folder / "none/x", "text"); });
  EXPECT_EQ(missing.kind(), ErrorKind::disk);
  EXPECT_THAT(missing.what(), HasSubstr("none/x: creating the file failed: No such file"));
  std::filesystem::create_directory(folder / "busy");
  EXPECT_EQ(error_of([&] { write_file(folder / "busy", "text"); }).kind(), ErrorKind::disk);
  EXPECT_EQ(entries(folder.path()), 1u);
}

TEST(File, AFileSizeLimitIsADiskError) {
  TempFolder folder;
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 1 << 20, .rlim_max = old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto error = error_of([&] { write_file(folder / "x", std::string(3 << 20, 'x')); });
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(error.kind(), ErrorKind::disk);
  EXPECT_THAT(error.what(), HasSubstr("File too large"));
  EXPECT_EQ(entries(folder.path()), 0u);
}

TEST(File, ALinkToAFileIsReadThrough) {
  TempFolder folder;
  write_file(folder / "x", "text");
  std::filesystem::create_symlink("x", folder / "link");
  EXPECT_EQ(read_text(folder / "link"), "text");
}

TEST(File, OnlyRegularFilesAreOpened) {
  TempFolder folder;
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { MappedFile{folder / "fifo"}; }).what(), HasSubstr("not a regular file"));
  EXPECT_THAT(error_of([&] { MappedFile{folder.path()}; }).what(), HasSubstr("is a folder"));
  EXPECT_THAT(error_of([&] { MappedFile{folder / "none"}; }).what(), HasSubstr("no such file"));
  EXPECT_THAT(error_of([&] { read_text("/dev/zero"); }).what(), HasSubstr("not a regular file"));
  write_file(folder / "x", "12345");
  EXPECT_THAT(error_of([&] { read_text(folder / "x", 4); }).what(), HasSubstr("5 bytes"));
}

TEST(File, AMovedMappingLivesOn) {
  TempFolder folder;
  write_file(folder / "x", "text");
  MappedFile first(folder / "x"), second;
  second = std::move(first);
  const MappedFile third(std::move(second));
  EXPECT_EQ(third.text(), "text");
}

}  // namespace
}  // namespace qtrain
