// What a run reports besides its steps: how it started, events for programs, what is left, and Prometheus' endpoint.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>

#include "core/os/descriptor.h"
#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::StartsWith;

std::vector<std::string> names_of(const std::vector<Json>& events) {
  std::vector<std::string> names;
  for (const Json& e : events) names.push_back(e["event"]);
  return names;
}

TEST(ToldRun, HowItStartedAndWhatItLeft) {
  const TempFolder folder;
  const Outcome outcome = train_ok(folder.path(), tiny_lora_run(folder / "out"), {"max_steps=2"});
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("\nstarted in "), HasSubstr("  epoch "), HasSubstr("  mem "),
                                 HasSubstr("  wait "), Not(HasSubstr("\x1b"))));
  EXPECT_THAT(outcome.out, AllOf(StartsWith("done: 2 steps in "), HasSubstr("\nwrote adapter_model.safetensors ("),
                                 HasSubstr("\nnext:\n  qtrain "), HasSubstr("qtrain merge --model ")));
}

TEST(ToldRun, EventsForPrograms) {
  const TempFolder folder;
  Json config = tiny_lora_run(folder / "out");
  config.update({{"max_steps", 4}, {"logging_steps", 2}, {"save_strategy", "steps"}, {"save_steps", 2}});
  const std::string file = (folder / "events.jsonl").string();
  const Outcome outcome = train_ok(folder.path(), config, {"--events", file, "--json", "--quiet"});
  const std::vector<Json> events = read_jsonl(file);
  const auto names = names_of(events);
  EXPECT_THAT(names, IsSupersetOf({"message", "phase", "progress", "row", "saved", "done"}));
  EXPECT_EQ(std::count(names.begin(), names.end(), "progress"), 2);
  EXPECT_EQ(events.back()["event"], "done");
  EXPECT_EQ(events.back()["next"], Json::parse(outcome.out)["next"]);
  const Json progress =
      *std::find_if(events.begin(), events.end(), [](const Json& e) { return e["event"] == "progress"; });
  EXPECT_EQ(progress["total"], 4);
  for (const char* key :
       {"epoch", "loss", "learning_rate", "tokens_per_second", "eta_seconds", "memory_bytes", "data_wait"})
    EXPECT_TRUE(progress[key].is_number()) << key;
}

TEST(ToldRun, AnErrorIsAnEventToo) {
  const TempFolder folder;
  Json config = tiny_lora_run(folder / "out");
  config["dataset_name"] = (folder / "none.jsonl").string();
  write_file(folder / "run.json", dump_json(config));
  const std::string file = (folder / "events.jsonl").string();
  EXPECT_NE(qtrain({.words = {(folder / "run.json").string(), "--events", file}}).code, 0);
  EXPECT_EQ(read_jsonl(file).back()["event"], "error");
  EXPECT_EQ(qtrain({.words = {(folder / "run.json").string(), "--events", (folder / "no/e").string()}}).code, 6);
}

/// A listening socket on loopback that occupies its port.
struct Taken {
  Descriptor socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  int port = 0;

  Taken() {
    sockaddr_in at{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof at;
    EXPECT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&at), size), 0);
    EXPECT_EQ(::listen(socket.get(), 1), 0);
    ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&at), &size);
    port = ntohs(at.sin_port);
  }
};

/// The reply on a connection to the port; empty if nobody listens.
std::string answer_of(int port, const std::string& request) {
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in at{
      .sin_family = AF_INET, .sin_port = htons(static_cast<std::uint16_t>(port)), .sin_addr = {htonl(INADDR_LOOPBACK)}};
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0) return "";
  if (::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) return "";
  std::string answer(65536, '\0');
  std::size_t size = 0;
  for (ssize_t n = 1; n > 0 && size < answer.size(); size += static_cast<std::size_t>(std::max<ssize_t>(n, 0)))
    n = ::recv(socket.get(), answer.data() + size, answer.size() - size, 0);
  return answer.substr(0, size);
}
const std::string kAsk = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

TEST(Prometheus, APortInUseIsAnErrorBeforeTraining) {
  const TempFolder folder;
  const Taken taken;
  Json config = tiny_lora_run(folder / "out");
  config["prometheus_port"] = taken.port;
  write_file(folder / "run.json", dump_json(config));
  const Outcome outcome = qtrain({.words = {(folder / "run.json").string()}});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("prometheus_port"), Not(HasSubstr("training:"))));
}

TEST(Prometheus, IsAnsweredWhileARunGoesOnAndChangesNothing) {
  const TempFolder folder;
  Json config = tiny_lora_run(folder / "plain");
  config.update({{"max_steps", 80}, {"logging_steps", 20}, {"device", "cpu"}});
  train_ok(folder.path(), config);
  const int port = Taken().port;  // free again
  config.update({{"output_dir", (folder / "asked").string()}, {"prometheus_port", port}});
  write_file(folder / "asked.json", dump_json(config));
  Process process(launch_of({.words = {(folder / "asked.json").string()}}));
  std::string text;
  int answers = 0;
  for (; process.running(); std::this_thread::sleep_for(std::chrono::milliseconds(2))) {
    const std::string answer = answer_of(port, kAsk);
    if (answer.find("qtrain_loss ") == std::string::npos) continue;
    text = answer;
    ++answers;
  }
  EXPECT_EQ(process.wait().code, 0);
  EXPECT_GE(answers, 1);
  EXPECT_THAT(text, AllOf(StartsWith("HTTP/1.1 200 OK"), HasSubstr("text/plain; version=0.0.4"),
                          HasSubstr("qtrain_max_steps 80\n"), HasSubstr("qtrain_tokens_per_second "),
                          HasSubstr("qtrain_grad_norm "), HasSubstr("qtrain_data_wait_ratio ")));
  EXPECT_EQ(bytes_of(folder / "asked/adapter_model.safetensors"), bytes_of(folder / "plain/adapter_model.safetensors"));
}

// Anyone who reaches the endpoint may ask for a name that begins like that of this machine.
TEST(Prometheus, LooksUpNamesWithoutKeepingClientsOrTheRunWaiting) {
  if (std::string_view(QTRAIN_SHORTAGE).empty()) GTEST_SKIP() << "not under sanitizers";
  const TempFolder folder;
  Json config = tiny_lora_run(folder / "out");
  const int port = Taken().port;  // free again
  config.update({{"max_steps", 1'000'000}, {"device", "cpu"}, {"prometheus_port", port}});
  config["prometheus_host"] = "0.0.0.0";
  write_file(folder / "run.json", dump_json(config));
  Launch launch = launch_of({.words = {(folder / "run.json").string()}});
  launch.environment.insert(launch.environment.end(), {fmt::format("LD_PRELOAD={}", QTRAIN_SHORTAGE), "SLOW_NAMES=15"});
  Process process(launch);
  ASSERT_TRUE(process.waits_for("step 10/")) << process.said();
  std::array<char, 256> name{};
  ASSERT_EQ(::gethostname(name.data(), name.size() - 1), 0);
  std::string first(name.data());
  first.resize(std::min(first.find('.'), first.size()));
  const auto begin = std::chrono::steady_clock::now();
  const std::string host = first + ".elsewhere.example";
  EXPECT_THAT(answer_of(port, "GET / HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n"),
              StartsWith("HTTP/1.1 403"));
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait().code, 75);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(12));
}

}  // namespace
}  // namespace qtrain::e2e
