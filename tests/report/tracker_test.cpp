#include "report/tracker.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <utility>

#include "core/os/file.h"
#include "tests/core/temp_folder.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;
using qtrain::testing::TempFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

Json row(int step, double loss) {
  return {{"step", step}, {"loss", loss}, {"eval_loss", nullptr}, {"time", 1000.5 + step}};
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder)) found.push_back(entry.path());
  return found;
}

/// The records in a log in LevelDB's format, after W&B's header of seven bytes. The checksum of a part is zlib's, over
/// its kind and bytes.
std::vector<std::string> records_of(const std::string& text) {
  constexpr std::size_t kBlock = 32768, kHeader = 7;
  EXPECT_EQ(text.substr(0, kHeader), std::string(":W&B\xE1\xBE\x00", kHeader));
  std::vector<std::string> records;
  std::string record;
  for (std::size_t at = kHeader; at < text.size();) {
    if (kBlock - at % kBlock < kHeader) {
      at += kBlock - at % kBlock;
      continue;
    }
    const std::size_t size = static_cast<unsigned char>(text[at + 4]) + 256u * static_cast<unsigned char>(text[at + 5]);
    const int kind = text[at + 6];
    EXPECT_LE(at % kBlock + kHeader + size, kBlock) << "a part crosses the end of its block";
    EXPECT_EQ(record.empty(), kind == 1 || kind == 2);
    record += text.substr(at + kHeader, size);
    at += kHeader + size;
    if (kind == 2 || kind == 3) continue;
    records.push_back(std::exchange(record, {}));
  }
  EXPECT_EQ(record, "");
  return records;
}

/// The single file for W&B in an output directory.
fs::path wandb_file(const fs::path& output) {
  const std::vector<fs::path> runs = entries(output / "wandb");
  EXPECT_EQ(runs.size(), 1u);
  const std::string name = runs.at(0).filename().string();
  EXPECT_THAT(name, MatchesRegex("offline-run-[0-9]+_[0-9]+-[0-9a-f]+"));
  return runs[0] / ("run-" + name.substr(name.rfind('-') + 1) + ".wandb");
}

TEST(WandbRun, IsALogOfRecords) {
  const TempFolder folder;
  const std::string longest(100000, 'x');
  const auto run = make_wandb_run({.output = folder / "out", .config = {{"learning_rate", 0.5}, {"notes", longest}}});
  for (int step = 1; step <= 300; ++step) run->append(row(step, 1.5));
  run->end(0);
  const std::vector<std::string> records = records_of(read_text(wandb_file(folder / "out")));
  ASSERT_EQ(records.size(), 4u + 600 + 1);
  EXPECT_THAT(records[0], HasSubstr("qtrain "));
  for (const std::string& part : {std::string("learning_rate"), std::string("0.5"), longest, std::string("out")})
    EXPECT_THAT(records[1], HasSubstr(part));
  for (const std::string part : {"train/loss", "1.5", "train/global_step", "_step", "_runtime"})
    EXPECT_THAT(records[5], HasSubstr(part));
  EXPECT_THAT(records[5], Not(HasSubstr("eval"))) << "a loss that is not finite is left out";
}

TEST(WandbRun, HasTheSumsOfZlib) {
  const TempFolder folder;
  make_wandb_run({.output = folder.path()})->end(5);
  const std::string text = read_text(wandb_file(folder.path()));
  // num: 5, exit {exit_code: 5, runtime: 0}; the checksum is zlib.crc32 of the kind, 1, and these bytes.
  const std::string content("\x08\x05\x92\x01\x04\x08\x05\x10\x00", 9), length("\x09\x00", 2), kind("\x01");
  EXPECT_THAT(text, ::testing::EndsWith("\x11\x45\x46\x30" + length + kind + content));
}

TEST(WandbRun, KeepsItsIdWhenItGoesOn) {
  const TempFolder folder;
  make_wandb_run({.output = folder.path()})->append(row(1, 1.25));
  const std::string name = wandb_file(folder.path()).filename();
  const std::string before = read_text(wandb_file(folder.path()));
  make_wandb_run({.output = folder.path(), .rows = {row(1, 1.25)}, .resumed_step = 1});
  EXPECT_EQ(wandb_file(folder.path()).filename(), name);
  EXPECT_EQ(records_of(read_text(wandb_file(folder.path()))).size(), records_of(before).size());
  make_wandb_run({.output = folder.path()});
  EXPECT_EQ(entries(folder / "wandb").size(), 2u) << "another run";
}

TEST(WandbRun, TheEarlierPartStaysUntilTheNewOneIsWhole) {
  const TempFolder folder;
  make_wandb_run({.output = folder.path()})->append(row(1, 1.25));
  const std::string before = read_text(wandb_file(folder.path()));
  const Json damaged{{"step", 2}, {"loss", 1.0}};  // without its time
  EXPECT_ANY_THROW(make_wandb_run({.output = folder.path(), .rows = {row(1, 1.25), damaged}, .resumed_step = 2}));
  std::vector<fs::path> runs = entries(folder / "wandb");
  std::erase_if(runs, [](const fs::path& run) { return run.filename().string().starts_with("."); });
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(read_text(entries(runs[0]).at(0).extension() == ".wandb" ? entries(runs[0])[0] : entries(runs[0]).at(1)),
            before);
  make_wandb_run({.output = folder.path(), .rows = {row(1, 1.25)}, .resumed_step = 1});
  EXPECT_EQ(records_of(read_text(wandb_file(folder.path()))).size(), records_of(before).size());
}

/// The single MLflow run in an output directory.
fs::path mlflow_run(const fs::path& output) {
  for (const fs::path& experiment : entries(output / "mlruns"))
    if (experiment.filename() != "0")
      for (const fs::path& run : entries(experiment))
        if (fs::is_directory(run)) return run;
  ADD_FAILURE() << "there is no run";
  return {};
}

TEST(MlflowRun, IsAFolderOfTheFileStore) {
  const TempFolder folder;
  const fs::path output = folder / "an out%put";
  std::string long_text;
  for (int i = 0; i < 3500; ++i) long_text += "\xc3\xa4";  // of two bytes
  const auto run = make_mlflow_run(
      {.output = output, .config = {{"optim", "adamw"}, {"seed", 42}, {"long", long_text}, {"a/b", 1}}});
  run->append(row(1, 2.5));
  run->append(row(2, 1.5));
  const fs::path there = mlflow_run(output);
  EXPECT_EQ(read_text(there / "metrics/loss"), "1001500 2.5 1\n1002500 1.5 2\n");
  EXPECT_FALSE(fs::exists(there / "metrics/eval_loss"));
  EXPECT_EQ(read_text(there / "params/optim"), "adamw");
  EXPECT_EQ(read_text(there / "params/seed"), "42");
  EXPECT_EQ(read_text(there / "params/long"), long_text.substr(0, 5996) + "...") << "6000 bytes at most";
  EXPECT_EQ(read_json(there / "artifacts/config.json")["long"], long_text);
  EXPECT_THAT(read_text(there / "meta.yaml"), HasSubstr("status: 1\n"));
  EXPECT_THAT(read_text(there / "meta.yaml"), HasSubstr("an%20out%25put/mlruns/"));
  EXPECT_THAT(read_text(there / "meta.yaml"), HasSubstr("run_name: \"an out%put\"\n"));
  run->end(75);
  EXPECT_THAT(read_text(there / "meta.yaml"), HasSubstr("status: 5\n"));
  const auto goes_on = make_mlflow_run({.output = output, .rows = {row(1, 2.5)}, .resumed_step = 1});
  EXPECT_EQ(mlflow_run(output), there);
  EXPECT_EQ(read_text(there / "metrics/loss"), "1001500 2.5 1\n");
  goes_on->end(0);
  EXPECT_THAT(read_text(there / "meta.yaml"), HasSubstr("status: 3\n"));
}

}  // namespace
}  // namespace qtrain
