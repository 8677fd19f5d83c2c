// `qtrain monitor` as a user runs it: alone, next to a process and a run, with the GPUs of the stand-in for NVML.
#include <signal.h>

#include "core/os/file.h"
#include "tests/e2e/screen.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

std::vector<std::string> short_watch(const std::vector<std::string>& more) {
  std::vector<std::string> words{"monitor", "--interval", "0.1", "--duration", "0.25"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

class Monitor : public ::testing::Test {
 protected:
  /// A call that finds two GPUs of the stand-in.
  Launch with_gpus(const std::vector<std::string>& words) {
    write_file(folder_ / "state",
               "gpus 2\n0.busy 97\n0.traffic 30\n0.used 7e10\n0.total 8e10\n0.clock 1900\n0.max_clock 1980\n"
               "1.busy 95\n1.traffic 20\n1.used 1e9\n1.total 8e10\n1.limits 4\n1.process 4242 1000\n");
    Launch launch = launch_of({.words = words});
    launch.environment = {"LD_LIBRARY_PATH=" QTRAIN_NVML_FOLDER, "QTRAIN_NVML_STATE=" + (folder_ / "state").string(),
                          "TERM=xterm", "NO_COLOR=", "LC_ALL=C"};
    return launch;
  }
  TempFolder folder_;
};

TEST_F(Monitor, TellsOfTheMachineWithoutAGpuToo) {
  const Outcome lines = qtrain_ok({.words = short_watch({})});
  EXPECT_THAT(lines.out, AllOf(HasSubstr("mean"), HasSubstr("\nCPU "), HasSubstr("\nmemory "), HasSubstr("no GPU: ")));
  EXPECT_THAT(lines.err, AllOf(HasSubstr(" s: CPU "), Not(HasSubstr("\x1b"))));
  EXPECT_THAT(qtrain_ok({.words = short_watch({"--quiet"})}).err, IsEmpty());
  const Json document =
      Json::parse(qtrain_ok({.words = short_watch({"--json", "--pid", std::to_string(::getpid())})}).out);
  EXPECT_GE(document["samples"].size(), 1u);
  EXPECT_TRUE(document["summary"]["host"]["process_rss_bytes"].contains("max"));
  EXPECT_TRUE(document["assessment"]["verdict"].is_string());
  EXPECT_TRUE(document["no_gpu"].is_string());
}

TEST_F(Monitor, ReadsGpusThroughNvml) {
  const std::string file = (folder_ / "samples.json").string();
  const Outcome outcome = Process(with_gpus(short_watch({"--json", file}))).wait();
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("GPU 0: NVIDIA Stand-in 80GB, 74.5 GiB"), HasSubstr("healthy: 2 GPUs are busy 96 %")));
  EXPECT_THAT(outcome.err, HasSubstr("GPU 0 busy 97 %"));
  const Json document = read_json(file);
  EXPECT_EQ(document["samples"][0]["gpus"][1]["limited_by"], Json({"power cap"}));
  EXPECT_EQ(document["samples"][0]["gpus"][1]["processes"][0]["pid"], 4242);
  EXPECT_EQ(document["summary"]["gpus"][0]["utilization_percent"]["mean"], 97);
  EXPECT_EQ(document["assessment"]["verdict"], "healthy");
}

TEST_F(Monitor, DrawsATableThatGoesWhenItEnds) {
  for (const int columns : {60, 80, 120}) {
    Launch launch = with_gpus({"monitor", "--interval", "0.05"});
    launch.columns = columns;
    Process process(launch);
    ASSERT_TRUE(process.waits_for("A\r\r\x1b[J")) << process.said();  // has drawn, and is about to redraw
    const std::string said = process.said();
    const auto during = screen_after(said.substr(0, said.rfind("\r\x1b[J")), columns);
    EXPECT_THAT(during, Contains(StartsWith("qtrain monitor")));
    EXPECT_THAT(during, Contains(StartsWith("1    95 %    20 %  954 MiB")));
    EXPECT_THAT(during, Contains(HasSubstr("power cap")));
    const auto last_minutes = Contains(::testing::ContainsRegex("^0    97 %.*#  -$"));
    if (columns < 80)
      EXPECT_THAT(during, Not(last_minutes));
    else
      EXPECT_THAT(during, last_minutes);
    for (const std::string& line : during) EXPECT_LT(line.size(), static_cast<std::size_t>(columns));
    process.signal(SIGINT);
    const Outcome outcome = process.wait();
    EXPECT_EQ(outcome.code, 0) << "Ctrl-C is how it ends";
    EXPECT_THAT(screen_after(outcome.err, columns), IsEmpty());
    EXPECT_THAT(outcome.out, HasSubstr("healthy: 2 GPUs"));
  }
}

TEST_F(Monitor, EndsWithTheProcessItWatches) {
  Launch sleep;
  sleep.argv = {"/bin/sleep", "1000"};
  Process watched(sleep);
  Process process(launch_of({.words = {"monitor", "--interval", "0.05", "--pid", std::to_string(watched.pid())}}));
  ASSERT_TRUE(process.waits_for(" s: ")) << process.said();
  watched.signal(SIGKILL);
  const Outcome outcome = process.wait();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("(sleep) has ended"), HasSubstr("process memory")));
}

TEST_F(Monitor, ARunThatHasEndedIsNotHealthy) {
  train_ok(folder_.path(), tiny_lora_run(folder_ / "done"));
  const auto verdict = [&](const std::vector<std::string>& words) {
    const Outcome outcome = Process(with_gpus(words)).wait();  // the GPUs are busy with something else
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return Json::parse(outcome.out)["assessment"];
  };
  const Json of_run = verdict(short_watch({"--json", "--run", (folder_ / "done").string()}));
  EXPECT_EQ(of_run["verdict"], "ended") << of_run;
  EXPECT_EQ(of_run["findings"].size(), 1u) << of_run;
  EXPECT_THAT(qtrain_ok({.words = short_watch({"--run", (folder_ / "done").string()})}).out,
              HasSubstr("ended: no running process writes to " + (folder_ / "done").string()));
}

TEST_F(Monitor, FollowsARun) {
  Json config = tiny_lora_run(folder_ / "out");
  config.update({{"max_steps", 1'000'000}, {"logging_steps", 1}, {"save_strategy", "no"}, {"device", "cpu"}});
  write_file(folder_ / "run.json", dump_json(config));
  Process run(launch_of({.words = {(folder_ / "run.json").string()}}));
  ASSERT_TRUE(run.waits_for("step 2/")) << run.said();
  const Json document =
      Json::parse(qtrain_ok({.words = short_watch({"--json", "--run", (folder_ / "out").string()})}).out);
  EXPECT_EQ(document["samples"][0]["processes"][0]["pid"], run.pid());
  EXPECT_GT(document["samples"][0]["run"]["tokens_per_second"], 0);
  EXPECT_TRUE(document["summary"]["run"]["data_wait_percent"].contains("mean"));
  run.signal(SIGINT);
  run.wait();
  const Outcome after = qtrain_ok({.words = short_watch({"--run", (folder_ / "out").string()})});
  EXPECT_THAT(after.err, HasSubstr("no running process writes to"));
}

TEST_F(Monitor, RefusesWhatItCannotWatch) {
  const Outcome pid = qtrain({.words = short_watch({"--pid", "99999999"})});
  EXPECT_EQ(pid.code, 2);
  EXPECT_THAT(pid.err, HasSubstr("there is no process 99999999"));
  EXPECT_EQ(qtrain({.words = short_watch({"--run", (folder_ / "none").string()})}).code, 3);
  EXPECT_EQ(qtrain({.words = {"monitor", "--interval", "0"}}).code, 2);
  EXPECT_EQ(qtrain({.words = short_watch({"--json", (folder_ / "no/file").string()})}).code, 6);
}

}  // namespace
}  // namespace qtrain::e2e
