#include "report/report_page.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <ctime>

#include "core/os/file.h"
#include "tests/core/temp_folder.h"
#include "tests/errors.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;
using qtrain::testing::TempFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Curve long_curve(std::size_t points) {
  Curve curve;
  for (std::size_t i = 0; i < points; ++i) {
    const auto x = static_cast<double>(i);
    curve.steps.push_back(x);
    curve.values.push_back(1.23456789 + 1e-7 * x);
    curve.seconds.push_back(0.123456789 * x);
    curve.tokens.push_back(4096 * x);
  }
  return curve;
}

/// The data in a page, as a browser reads it.
Json data_of(const std::string& page) {
  const std::string begin = R"(<script type="application/json" id="data">)";
  const std::size_t from = page.find(begin) + begin.size();
  return parse_json(page.substr(from, page.find("</script>", from) - from), "data");
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size()) ++n;
  return n;
}

TEST(ThinnedCurve, KeepsEndsAndExtremes) {
  Curve curve = long_curve(100000);
  curve.values[31415] = 9;
  curve.values[31416] = -9;
  const Curve thin = thinned(curve, 1000);
  EXPECT_LE(thin.size(), 1000u);
  EXPECT_GE(thin.size(), 500u);
  EXPECT_EQ(thin.steps.front(), 0);
  EXPECT_EQ(thin.steps.back(), 99999);
  EXPECT_TRUE(std::is_sorted(thin.steps.begin(), thin.steps.end()));
  EXPECT_EQ(std::ranges::max(thin.values), 9);
  EXPECT_EQ(std::ranges::min(thin.values), -9);
}

TEST(ThinnedCurve, IsWholeWhereItIsShort) {
  for (const std::size_t n : {0, 1, 2, 30}) EXPECT_EQ(thinned(long_curve(n), 30).size(), n);
}

TEST(ReportPage, OfALongRunIsSmall) {
  RunRecord run{.folder = "run"};
  for (const char* key :
       {"loss", "eval_loss", "learning_rate", "grad_norm", "tokens_per_second", "device_mb", "rss_mb"})
    run.curves[key] = long_curve(100000);
  for (int step = 0; step < 3000; ++step)
    for (int prompt = 0; prompt < 4; ++prompt)
      run.samples.push_back({.step = step, .prompt = fmt::format("{}", prompt), .completion = std::string(900, '<')});
  for (int i = 0; i < 3000; ++i)
    run.messages.push_back({.level = "warning", .text = fmt::format("{} {:500}", i, "\"")});
  const std::string page = report_page({run, run, run});
  EXPECT_LT(page.size(), 2000000u);
  const Json samples = data_of(page)["runs"][0]["samples"];
  EXPECT_EQ(samples.front()["step"], 0);
  EXPECT_EQ(samples.back()["step"], 2999);
  EXPECT_GT(samples.size(), 3u);
}

TEST(ReportPage, HoldsHostileTextAsText) {
  const std::string hostile = "</script><script>alert(1)</script><!-- <script> ]]> \" ' & \u2028 {{data}}";
  RunRecord run{.folder = "<img src=x onerror=alert(1)>", .end = hostile};
  run.samples = {{.step = 1, .prompt = hostile, .completion = hostile}};
  run.messages = {{.level = "warning", .text = hostile}};
  run.resolved["values"][hostile] = {{"value", hostile}, {"origin", hostile}};
  run.resolved["run"][hostile] = hostile;
  const std::string page = report_page({run});
  EXPECT_EQ(count(page, "</script>"), 2u) << "the ends of the data and of the script";
  EXPECT_EQ(count(page, "<script"), 2u);
  EXPECT_THAT(page, Not(HasSubstr("<!--")));
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  const Json shown = data_of(page)["runs"][0];
  EXPECT_EQ(shown["samples"][0]["rows"][0], Json({hostile, hostile, ""}));
  EXPECT_EQ(shown["config"][0][0], hostile);
  EXPECT_EQ(shown["end"], hostile);
}

TEST(ReportPage, LoadsNothing) {
  const std::string page = report_page({RunRecord{.folder = "run"}});
  for (const char* loads : {"https:", "src=", "@import", "fetch(", "XMLHttpRequest", "import("})
    EXPECT_THAT(page, Not(HasSubstr(loads)));
  EXPECT_EQ(count(page, "http:"), 1u) << "the namespace of SVG";
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
}

TEST(ReportPage, CutsTextsBetweenCharacters) {
  RunRecord run{.folder = "run"};
  for (int i = 0; i < 3; ++i) {
    std::string text(static_cast<std::size_t>(i), 'a');
    while (text.size() < 9000) text += "€";
    run.messages.push_back({.level = "warning", .text = text});
  }
  const Json messages = data_of(report_page({run}))["runs"][0]["messages"];
  ASSERT_EQ(messages.size(), 3u);
  for (const Json& m : messages) EXPECT_THAT(m["text"].get<std::string>(), Not(HasSubstr("\uFFFD")));
}

/// A run folder whose files have these contents.
class RunFolder : public ::testing::Test {
 protected:
  RunRecord with(const std::string& name, const std::string& contents) {
    write_file(folder_ / name, contents);
    return read_run(folder_.path());
  }
  TempFolder folder_;
};

TEST_F(RunFolder, WithOneRowIsShown) {
  const RunRecord run = with("metrics.jsonl", R"({"step": 1, "loss": 2.5, "time": 100.5})"
                                              "\n");
  const Json figures = data_of(report_page({run}))["runs"][0]["figures"];
  EXPECT_EQ(figures["loss"], 2.5);
  EXPECT_EQ(figures["step"], 1);
  EXPECT_EQ(figures["state"], "unfinished");
  EXPECT_TRUE(figures["eval_loss"].is_null());
}

TEST_F(RunFolder, IsReadAsFarAsItIsWhole) {
  write_file(folder_ / "resolved_config.json", "{\"values\": ");
  write_file(folder_ / "samples.jsonl", "{\"step\": 1, \"prompt\": 3}\nnonsense\n");
  const RunRecord run = with("metrics.jsonl",
                             "{\"step\": 1, \"loss\": 2.5}\n"
                             "[1]\n{\"loss\": 1}\n{\"step\": -1}\n{\"step\": \"x\"}\n\xff\n{\"step\": 1e300}\n"
                             "{\"step\": 2, \"loss\": null, \"grad_norm\": \"big\"}\n"
                             "{\"step\": 3, \"loss\": 2.25}\n{\"step\": 4, \"lo");
  EXPECT_EQ(run.rows, 3);
  EXPECT_EQ(run.step, 3);
  EXPECT_THAT(run.curve("loss")->values, ElementsAre(2.5, 2.25));
  EXPECT_EQ(run.curve("loss")->not_finite, 1);
  EXPECT_THAT(run.missing,
              ElementsAre(HasSubstr("resolved_config.json cannot be read"),
                          HasSubstr("resolved_config.json is missing: config"),
                          HasSubstr("metrics.jsonl: skipped 6 lines"), HasSubstr("samples.jsonl: skipped 1 line ")));
  EXPECT_FALSE(report_page({run}).empty());
}

TEST_F(RunFolder, WithValuesOfOtherTypesIsShown) {
  for (const char* resolved :
       {"[]", "3", R"({"values": [1], "run": 3, "warnings": {}})",
        R"({"values": {"a": 1, "b": {}, "c": {"value": {}, "origin": 3}}, "run": {"files": [], "max_steps": "x",
                                   "memory_plan": {"total": "x", "weights": null}}, "warnings": [3]})"}) {
    write_file(folder_ / "train_results.json", R"({"memory": 3})");
    write_file(folder_ / "messages.jsonl", "{}\n{\"level\": 3}\n{\"level\": \"failed\"}\n");
    const RunRecord run = with("resolved_config.json", resolved);
    EXPECT_FALSE(report_page({run, run}).empty()) << resolved;
    EXPECT_TRUE(differences({run, run}).empty());
  }
}

TEST_F(RunFolder, WithoutMetricsHasTheHistoryOfItsState) {
  const RunRecord run =
      with("trainer_state.json", R"({"log_history": [{"step": 5, "loss": 1.5}, 3, {"step": 6, "eval_loss": 2}]})");
  EXPECT_THAT(run.curve("loss")->values, ElementsAre(1.5));
  EXPECT_THAT(run.curve("eval_loss")->steps, ElementsAre(6));
  EXPECT_THAT(run.missing, ::testing::Contains(HasSubstr("rows come from trainer_state.json")));
}

TEST_F(RunFolder, SaysHowTheRunEnded) {
  const std::string rows = "{\"step\": 1}\n{\"step\": 4}\n";
  write_file(folder_ / "metrics.jsonl", rows);
  EXPECT_EQ(with("messages.jsonl", "{\"level\": \"stopped\", \"step\": 2, \"text\": \"x\"}\n").status,
            RunStatus::unfinished)
      << "the run has continued since";
  const RunRecord failed = with("messages.jsonl", "{\"level\": \"failed\", \"step\": 5, \"text\": \"no disk\"}\n");
  EXPECT_EQ(failed.status, RunStatus::failed);
  EXPECT_EQ(failed.end, "no disk");
  EXPECT_EQ(failed.step, 5) << "a step that is not logged";
  EXPECT_EQ(with("metrics.jsonl", rows + "{\"step\": 4, \"train_runtime\": 1}\n").status, RunStatus::done);
  EXPECT_EQ(with("metrics.jsonl", rows + "{\"step\": 4, \"train_runtime\": 1}\n{\"step\": 6}\n").status,
            RunStatus::unfinished);
}

TEST_F(RunFolder, TellsTrainedTokensInTheTimeThatWasLogged) {
  const RunRecord run = with("metrics.jsonl",
                             "{\"step\": 1, \"num_tokens\": 100, \"tokens_per_second\": 50, \"step_seconds\": 1.5}\n"
                             "{\"step\": 2, \"num_tokens\": 300, \"tokens_per_second\": 100, \"step_seconds\": 1.5}\n"
                             "{\"step\": 2, \"eval_loss\": 1, \"eval_runtime\": 0.5}\n");
  EXPECT_EQ(run.seconds, 4);
  EXPECT_EQ(figures_of(run)["tokens_per_second"], 75);
  EXPECT_EQ(run.phases, (std::map<std::string, double>{{"steps", 3}, {"evaluation", 0.5}}));
}

TEST_F(RunFolder, WithoutARunIsRefused) {
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { read_run(folder_.path()); }),
              HasSubstr("no run has written to this folder"));
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { read_run(folder_ / "nowhere"); }), HasSubstr("is not a folder"));
}

TEST(Runs, AreToldApart) {
  EXPECT_THAT(names_of({{.folder = "x/a/"}, {.folder = "x/b"}}), ElementsAre("a", "b"));
  EXPECT_THAT(names_of({{.folder = "x/a"}, {.folder = "y/a"}}), ElementsAre("x", "y"));
  EXPECT_THAT(names_of({{.folder = "p/x/k/a"}, {.folder = "p/y/a/"}, {.folder = "p/z/b/a"}}),
              ElementsAre("x/k", "y", "z/b"));
  EXPECT_THAT(names_of({{.folder = "x/a"}, {.folder = "x/a"}}), ElementsAre("x/a", "x/a"));
}

TEST(Runs, DifferInKeys) {
  RunRecord a{.folder = "a"}, b{.folder = "b"};
  a.resolved = {{"values", {{"seed", {{"value", 1}}}, {"optim", {{"value", "x"}}}, {"output_dir", {{"value", "a"}}}}}};
  b.resolved = {{"values",
                 {{"seed", {{"value", 2}}},
                  {"optim", {{"value", "x"}}},
                  {"output_dir", {{"value", "b"}}},
                  {"new", {{"value", true}}}}}};
  EXPECT_EQ(differences({a, b}), (Json{{"seed", {1, 2}}, {"new", {nullptr, true}}}));
}

TEST(Runs, OfVeryManyKeysAreComparedInLittleTime) {
  std::vector<RunRecord> runs{{.folder = "a"}, {.folder = "b"}};
  for (const int value : {0, 1}) {
    std::string keys;
    for (int i = 0; i < 60'000; ++i) keys += fmt::format("{}\"k{}\":{{\"value\":{}}}", i > 0 ? "," : "", i, value);
    runs[static_cast<std::size_t>(value)].resolved = parse_json("{\"values\":{" + keys + "}}", "run");
  }
  const std::clock_t begin = std::clock();
  EXPECT_EQ(differences(runs).size(), 60'000u);
  EXPECT_LT(std::clock() - begin, 5 * CLOCKS_PER_SEC);
}

TEST(ReportPage, SearchesMessagesForAFewWarnings) {
  RunRecord run{.folder = "a"};
  for (int i = 0; i < 20'000; ++i) run.messages.push_back({.level = "warning", .text = std::string(100, 'm')});
  Json warnings = Json::array();
  for (int i = 0; i < 20'000; ++i) warnings.push_back(fmt::format("mmm{}", i));
  run.resolved = {{"warnings", warnings}};
  const std::clock_t begin = std::clock();
  EXPECT_THAT(report_page({run}), HasSubstr("mmm7"));
  EXPECT_LT(std::clock() - begin, 5 * CLOCKS_PER_SEC);
}

}  // namespace
}  // namespace qtrain
