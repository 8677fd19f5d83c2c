#include "report/event_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <sstream>

#include "core/os/file.h"
#include "tests/core/temp_folder.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;
using qtrain::testing::TempFolder;
using ::testing::EndsWith;
using ::testing::HasSubstr;

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

std::vector<Json> goldens() {
  std::vector<Json> lines;
  std::istringstream text(read_text(QTRAIN_SOURCE_DIR "/tests/report/goldens/events.jsonl"));
  for (std::string line; std::getline(text, line);) lines.push_back(parse_json(line, "events.jsonl"));
  return lines;
}

std::string only_file_of(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  EXPECT_EQ(files.size(), 1u);
  EXPECT_THAT(files.at(0).filename().string(), HasSubstr(".tfevents."));  // TensorBoard finds files by this
  return hex(read_text(files.at(0)));
}

TEST(EventFiles, HoldTheRecordsOfTensorBoard) {
  const TempFolder folder;
  std::string expected;
  {
    EventFile events(folder / "a/runs", 0);
    for (const Json& golden : goldens())
      if (golden.contains("row")) {
        events.append(golden["row"]);
        expected += golden["record"].get<std::string>();
      }
  }
  const std::string bytes = only_file_of(folder / "a/runs");
  EXPECT_THAT(bytes, EndsWith(expected));
  EXPECT_THAT(bytes, ::testing::StartsWith("1800000000000000a37f4b22")) << "the first record of every event file";
  EXPECT_THAT(bytes, HasSubstr(hex("brain.Event:2")));
}

TEST(EventFiles, TakeBackWhatIsLoggedAnew) {
  const TempFolder folder;
  { EventFile events(folder / "new", 0); }
  { EventFile events(folder / "resumed", 8); }
  const std::string session = goldens().back()["event"];
  const std::string step = "1008", start = session.substr(step.size());
  ASSERT_THAT(session, ::testing::StartsWith(step));
  EXPECT_THAT(only_file_of(folder / "resumed"), HasSubstr(step + start));
  EXPECT_THAT(only_file_of(folder / "new"), HasSubstr("1000" + start))
      << "everything from an earlier attempt is purged";
}

}  // namespace
}  // namespace qtrain
