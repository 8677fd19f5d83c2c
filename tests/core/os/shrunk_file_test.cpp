#include "core/os/shrunk_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "core/os/file.h"
#include "tests/core/temp_folder.h"

namespace qtrain {
namespace {

using testing::TempFolder;

/// Reads a file of many pages that somebody empties meanwhile.
void read_emptied(const std::filesystem::path& file) {
  write_file(file, std::string(1 << 16, 'x'));
  install_shrunk_file_handler();
  const MappedFile mapped(file);
  std::filesystem::resize_file(file, 0);
  volatile char read = mapped.text()[1 << 15];
  (void)read;
}

TEST(AShrunkFile, EndsTheProgramAsAnInputError) {
  const TempFolder folder;
  EXPECT_EXIT(read_emptied(folder / "model.safetensors"), ::testing::ExitedWithCode(3),
              "error: .*/model.safetensors: cannot be read any more: it became shorter");
  EXPECT_EXIT(read_emptied(folder / "a\x1b\n.jsonl"), ::testing::ExitedWithCode(3), R"(/a\\x1b\\n.jsonl: cannot)");
  EXPECT_EXIT(
      {
        ::dup2(STDERR_FILENO, STDOUT_FILENO);
        set_shrunk_file_document(true);
        read_emptied(folder / "a\"b");
      },
      ::testing::ExitedWithCode(3),
      R"(\{"error": \{"kind": "input", "exit_code": 3, .*"place": ".*/a\\"b", "remedy": ")");
}

TEST(AShrunkFile, IsFoundAmongManyMappings) {
  const TempFolder folder;
  write_file(folder / "small", "x");
  const auto hold = [&](std::size_t count) {
    std::vector<MappedFile> held;
    while (held.size() < count) held.emplace_back(folder / "small");
    return held;
  };
  EXPECT_EXIT(
      {
        const auto held = hold(2000);  // more than have a name
        read_emptied(folder / "large");
      },
      ::testing::ExitedWithCode(3), "error: a file: cannot be read any more");
  hold(2000);
  EXPECT_EXIT(read_emptied(folder / "large"), ::testing::ExitedWithCode(3), "/large: cannot be read any more")
      << "places of earlier mappings are free again";
}

// The system does not send the signal, but an error.
TEST(AShrunkFile, ThatIsWrittenToAnotherIsAnInputError) {
  const TempFolder folder;
  write_file(folder / "read", std::string(1 << 22, 'x'));
  const MappedFile mapped(folder / "read");
  std::filesystem::resize_file(folder / "read", 0);
  const Error e =
      test::error_of([&] { write_file(folder / "written", [&](const auto& append) { append(mapped.bytes()); }); });
  EXPECT_EQ(e.kind(), ErrorKind::input);
  EXPECT_THAT(e.text().cause, ::testing::HasSubstr("became shorter"));
  EXPECT_FALSE(std::filesystem::exists(folder / "written"));
}

// The program dies as usual if the memory is not that of a file: that is a bug, or a lack of shared memory.
TEST(AShrunkFile, IsNoExcuseForOtherFaults) {
  const TempFolder folder;
  const auto fault = [&] {
    write_file(folder / "other", std::string(1 << 16, 'x'));
    install_shrunk_file_handler();
    const Descriptor in(::open((folder / "other").c_str(), O_RDONLY));
    const auto* bytes = static_cast<const char*>(::mmap(nullptr, 1 << 16, PROT_READ, MAP_PRIVATE, in.get(), 0));
    std::filesystem::resize_file(folder / "other", 0);
    volatile char read = bytes[1 << 15];
    (void)read;
  };
  EXPECT_EXIT(fault(), ::testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace qtrain
