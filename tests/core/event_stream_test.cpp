// Events for programs never hold up the work.
#include "core/event_stream.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

#include "core/file.h"
#include "core/json.h"
#include "tests/core/temp_folder.h"

namespace qtrain {
namespace {

using testing::TempFolder;

TEST(EventStream, WritesAnObjectALine) {
  const TempFolder folder;
  EventStream events(folder / "events");
  events.write("phase", R"({"name": "a \"b\""})");
  events.write("empty", "{}");
  const std::string text = read_text(folder / "events");
  const Json first = Json::parse(text.substr(0, text.find('\n'))), second = Json::parse(text.substr(text.find('\n')));
  EXPECT_EQ(first["event"], "phase");
  EXPECT_EQ(first["name"], "a \"b\"");
  EXPECT_TRUE(first["time"].is_number());
  EXPECT_EQ(second["event"], "empty");
  EXPECT_NE(testing::error_of(ErrorKind::disk, [&] { EventStream(folder / "no/events"); }), "");
}

TEST(EventStream, AReaderThatIsSlowOrGoneHoldsNothingUp) {
  const TempFolder folder;
  const std::string fifo = folder / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  Descriptor reader(::open(fifo.c_str(), O_RDONLY | O_NONBLOCK));
  EventStream events(fifo);
  const std::string members = R"({"text": ")" + std::string(200, 'x') + "\"}";
  for (int i = 0; i < 2000; ++i) events.write("message", members);  // more than a pipe holds
  reader.close();
  for (int i = 0; i < 3; ++i) events.write("message", members);
}

}  // namespace
}  // namespace qtrain
