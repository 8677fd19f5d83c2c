// Writing events for programs never blocks the work.
#include "core/event_stream.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string>

#include "core/formats/json.h"
#include "core/log.h"
#include "core/os/file.h"
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

TEST(EventStream, AFileGrows) {
  const TempFolder folder;
  for (const char* run : {"first", "second"}) EventStream(folder / "events").write(run, "{}");
  const std::string text = read_text(folder / "events");
  EXPECT_NE(text.find("first"), std::string::npos);
  EXPECT_NE(text.find("second"), std::string::npos);
}

TEST(EventStream, EventsStandOnLinesOfTheirOwn) {
  const TempFolder folder;
  for (const auto& [before, lines] : {std::pair("", 1), {"{}\n", 2}, {"{\"event\": \"cut", 2}}) {
    write_file(folder / "events", before);
    EventStream(folder / "events").write("next", "{}");
    const std::string text = read_text(folder / "events");
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), lines) << text;
    EXPECT_TRUE(text.find("{\"event\": \"next") == 0 || text.find("\n{\"event\": \"next") != text.npos) << text;
  }
}

std::string read_all(const Descriptor& pipe) {
  std::string text;
  char bytes[4096];
  for (ssize_t n; (n = ::read(pipe.get(), bytes, sizeof bytes)) > 0;) text.append(bytes, static_cast<std::size_t>(n));
  return text;
}

TEST(EventStream, AFifoKeepsWhatComesBeforeItsReader) {
  const TempFolder folder;
  const std::string fifo = folder / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EventStream events(fifo);
  events.write("early", "{}");
  const Descriptor reader(::open(fifo.c_str(), O_RDONLY | O_NONBLOCK));
  EXPECT_NE(read_all(reader).find("early"), std::string::npos);
}

// The lines are longer than a pipe accepts at once, however much room it has.
TEST(EventStream, AReaderThatStallsLosesWholeLines) {
  const TempFolder folder;
  const std::string fifo = folder / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EventStream events(fifo);
  const Descriptor reader(::open(fifo.c_str(), O_RDONLY | O_NONBLOCK));
  constexpr int kEvents = 40;
  for (int i = 0; i < kEvents; ++i)
    events.write("message", dump_json({{"text", std::string(static_cast<std::size_t>(3000 + 250 * i), 'x')}}));
  std::string text = read_all(reader);
  events.write("last", "{}");
  text += read_all(reader);
  int read = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line); ++read) EXPECT_TRUE(Json::accept(line)) << line.size();
  EXPECT_GT(events.dropped(), 0);
  EXPECT_EQ(read + events.dropped(), kEvents + 1);
}

TEST(EventStream, ALogTellsHowManyWereLeftOut) {
  const TempFolder folder;
  const std::string fifo = folder / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> people(std::tmpfile(), std::fclose);
  {
    Log log(LogLevel::warning, {.people = people.get()});
    log.set_events(std::make_unique<EventStream>(fifo));
    for (int i = 0; i < 2000; ++i) log.info("{}", std::string(200, 'x'));
  }
  std::rewind(people.get());
  std::string said(1000, 0);
  said.resize(std::fread(said.data(), 1, said.size(), people.get()));
  EXPECT_NE(said.find(" events could not be written to --events"), std::string::npos) << said;
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
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
