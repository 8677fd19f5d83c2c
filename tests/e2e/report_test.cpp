#include <fmt/format.h>

#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Report, IsWrittenAtTheEndOfARun) {
  const TempFolder folder;
  Json config = tiny_run(folder / "out");
  config.update({{"eval_dataset_name", config["dataset_name"]}, {"eval_strategy", "steps"}, {"eval_steps", 4}});
  train_ok(folder.path(), config);
  const std::string page = bytes_of(folder / "out/report.html");
  EXPECT_THAT(page, HasSubstr(R"("state":"done")"));
  const Json made = Json::parse(
      qtrain_ok({.words = {"report", (folder / "out").string(), "--json", "--output", (folder / "page.html").string()}})
          .out);
  EXPECT_EQ(bytes_of(folder / "page.html"), page);
  EXPECT_EQ(made["state"], "done");
  EXPECT_EQ(made["step"], 8);
  EXPECT_EQ(made["max_steps"], 8);
  EXPECT_EQ(made["planned_memory_mb"], made["peak_memory_mb"]);
  EXPECT_EQ(made["best_eval_step"], 8);
  EXPECT_EQ(made["missing"], Json::array());
  for (const char* phase : {"steps", "start-up", "evaluation"})
    EXPECT_THAT(page, HasSubstr(fmt::format("\"{}\":", phase)));
}

TEST(Report, OfAFailedRunSaysWhy) {
  const TempFolder folder;
  Json config = tiny_run(folder / "out");
  config.update({{"learning_rate", 1e30}, {"max_nonfinite_steps", 2}, {"max_grad_norm", 0}});
  write_file(folder / "config.json", dump_json(config));
  EXPECT_EQ(qtrain({.words = {(folder / "config.json").string()}}).code, 5);
  EXPECT_THAT(bytes_of(folder / "out/report.html"), HasSubstr(R"("state":"failed")"));
  const Json last = read_jsonl(folder / "out/messages.jsonl").back();
  EXPECT_EQ(last["level"], "failed");
  EXPECT_THAT(last["text"].get<std::string>(), HasSubstr("is not finite in 2 steps in a row"));
}

TEST(Report, ThatCannotBeWrittenDoesNotFailTheRun) {
  const TempFolder folder;
  fs::create_directories(folder / "out/report.html/in_its_place");
  const Outcome run = train_ok(folder.path(), tiny_run(folder / "out"));
  EXPECT_THAT(run.err, HasSubstr("could not write report.html"));
}

TEST(Report, RefusesFoldersWithoutARun) {
  const TempFolder folder;
  EXPECT_EQ(qtrain({.words = {"report", folder.path().string()}}).code, 3);
  EXPECT_EQ(qtrain({.words = {"report", (folder / "nowhere").string()}}).code, 3);
  EXPECT_EQ(qtrain({.words = {"report"}}).code, 2);
  EXPECT_EQ(qtrain({.words = {"compare", folder.path().string()}}).code, 2);
}

// With time that grew with the square of both, this took hours.
TEST(Report, ComparesConfigsOfVeryManyKeysAndLongValues) {
  const TempFolder folder;
  train_ok(folder.path(), tiny_run(folder / "out"));
  fs::copy(folder / "out", folder / "other", fs::copy_options::recursive);
  const Json resolved = read_json(folder / "out/resolved_config.json");
  for (const char* name : {"out", "other"}) {
    std::string keys;
    for (int i = 0; i < 30'000; ++i) keys += fmt::format(",\"k{}\":{{\"value\":\"{}\"}}", i, name);
    Json changed = resolved;
    changed["values"] =
        parse_json(fmt::format("{{\"long\":{{\"value\":\"{}{}\"}}{}}}", std::string(1'000'000, 'x'), name, keys), name);
    write_file(folder / name / "resolved_config.json", dump_json(changed));
  }
  const Outcome compared = qtrain_ok({.words = {"compare", (folder / "out").string(), (folder / "other").string(),
                                                "--output", (folder / "c.html").string()}});
  EXPECT_THAT(compared.out, HasSubstr("k29999"));
  EXPECT_THAT(compared.out, HasSubstr("...xxx"));
}

TEST(Report, GoesToTheToolsThatAreNamed) {
  const TempFolder folder;
  Json config = tiny_run(folder / "out");
  config["report_to"] = {"wandb", "mlflow"};
  train_ok(folder.path(), config);
  std::map<std::string, fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder / "out"))
    if (entry.is_regular_file())
      files[entry.path().extension() == ".wandb" ? "wandb" : entry.path().filename()] = entry;
  EXPECT_THAT(bytes_of(files.at("wandb")), HasSubstr("train/loss"));
  EXPECT_EQ(bytes_of(files.at("mlflow.runName")), "out");
}

// Only the leading rank reports rows, and each tool gets every row once.
TEST(Report, OfSeveralRanksIsWrittenByTheFirst) {
  const TempFolder folder;
  Json config = tiny_run(folder / "out");
  config.update({{"report_to", {"wandb", "mlflow", "tensorboard"}},
                 {"nproc", 2},
                 {"device", "cpu"},
                 {"per_device_train_batch_size", 1},
                 {"logging_steps", 1},
                 {"eval_dataset_name", config["dataset_name"]},
                 {"eval_strategy", "steps"},
                 {"eval_steps", 4}});
  train_ok(folder.path(), config);
  std::map<std::string, std::vector<fs::path>> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder / "out")) {
    const std::string name = entry.path().filename();
    const bool events = name.starts_with("events.out.tfevents.");
    if (entry.is_regular_file())
      files[events ? "events" : entry.path().extension() == ".wandb" ? "wandb" : name].push_back(entry);
  }
  for (const char* kind : {"events", "wandb", "mlflow.runName", "metrics.jsonl", "report.html"})
    EXPECT_EQ(files[kind].size(), 1u) << kind;

  std::map<std::string, int> rows;
  for (const Json& row : read_jsonl(folder / "out/metrics.jsonl"))
    for (const char* key : {"loss", "eval_loss"}) rows[key] += row.contains(key) ? 1 : 0;
  EXPECT_EQ(rows["loss"], 8);
  EXPECT_EQ(rows["eval_loss"], 2);
  const auto times_in = [&](const char* kind, const std::string& text) {
    const std::string bytes = bytes_of(files[kind].at(0));
    int times = 0;
    for (std::size_t at = 0; (at = bytes.find(text, at)) != std::string::npos; ++at) ++times;
    return times;
  };
  const auto expect_rows = [&](const char* kind, int times) {
    EXPECT_EQ(times_in(kind, "train/loss"), times * rows["loss"]) << kind;
    EXPECT_EQ(times_in(kind, "eval/loss"), times * rows["eval_loss"]) << kind;
  };
  expect_rows("events", 1);
  expect_rows("wandb", 2);  // in the history and in the summary
  ASSERT_EQ(files["loss"].size(), 1u) << "a metric of MLflow";
  EXPECT_EQ(times_in("loss", "\n"), rows["loss"]);
  EXPECT_EQ(times_in("eval_loss", "\n"), rows["eval_loss"]);
}

TEST(Compare, LaysRunsSideBySide) {
  const TempFolder folder;
  train_ok(folder.path(), tiny_run(folder / "a"));
  std::string wide;
  for (int i = 0; i < 40; ++i) wide += "\u4e2d";  // two columns each
  const std::string rows = (folder / (wide + ".jsonl")).string();
  fs::copy_file(tiny_run("")["dataset_name"].get<std::string>(), rows);
  train_ok(folder.path(), tiny_run(folder / "b"), {"seed=7", "dataset_name=" + rows});
  const std::vector<std::string> words{"compare", (folder / "a").string(), (folder / "b").string(), "--output",
                                       (folder / "both.html").string()};
  const std::string table = qtrain_ok({.words = words}).out;
  EXPECT_THAT(table, ::testing::ContainsRegex("state +done +done\n"));
  EXPECT_THAT(table, ::testing::ContainsRegex("\nseed +42 +7\n"));
  EXPECT_THAT(table, Not(HasSubstr("output_dir")));
  EXPECT_THAT(table, HasSubstr(" ..." + wide.substr(0, std::size_t{3} * 11) + ".jsonl\"]\n")) << "34 columns at most";
  std::vector<std::string> with_json = words;
  with_json.emplace_back("--json");
  const Json json = Json::parse(qtrain_ok({.words = with_json}).out);
  EXPECT_EQ(json["differences"]["seed"], Json({42, 7}));
  EXPECT_EQ(json["differences"]["dataset_name"][1], Json::array({rows}));
  EXPECT_THAT(json["differences"], ::testing::SizeIs(2));
  EXPECT_EQ(json["runs"][1]["name"], "b");
  EXPECT_EQ(json["runs"][0]["step"], 8);
  EXPECT_THAT(bytes_of(folder / "both.html"), HasSubstr(R"("name":"b")"));
}

}  // namespace
}  // namespace qtrain::e2e
