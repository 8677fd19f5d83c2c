#include "monitor/run_rows.h"

#include <gtest/gtest.h>

#include "core/os/file.h"
#include "monitor/sample_file.h"
#include "tests/core/temp_folder.h"

namespace qtrain::monitor {
namespace {

using qtrain::testing::TempFolder;

TEST(RunRows, FollowAFileThatGrows) {
  const TempFolder folder;
  RunRows rows(folder.path());
  EXPECT_FALSE(rows.update()) << "there is no file yet";
  std::string text = "{\"step\": 1, \"tokens_per_second\": 50, \"data_wait\": 0.25, \"loss\": null}\nnonsense\n";
  write_file(folder / "metrics.jsonl", text);
  EXPECT_TRUE(rows.update());
  EXPECT_EQ(rows.last()->step, 1);
  EXPECT_EQ(rows.last()->values, (Values{{"tokens_per_second", 50}, {"data_wait_percent", 25}}));
  EXPECT_FALSE(rows.update());
  write_file(folder / "metrics.jsonl", text += "{\"step\": 2, \"tokens_per_second\": 60, \"loss\": 1.5");
  EXPECT_FALSE(rows.update()) << "half a line";
  write_file(folder / "metrics.jsonl", text += "}\n{\"step\": 2, \"eval_loss\": 3}\n");
  EXPECT_TRUE(rows.update());
  EXPECT_EQ(rows.last()->values.at("loss"), 1.5);
  write_file(folder / "metrics.jsonl", text += "{\"step\": 2, \"train_runtime\": 3, \"tokens_per_second\": 55}\n");
  EXPECT_FALSE(rows.update());
  EXPECT_TRUE(rows.finished());
  write_file(folder / "metrics.jsonl", "{\"step\": 1, \"tokens_per_second\": 70}\n");
  EXPECT_TRUE(rows.update()) << "the run has started over";
  EXPECT_EQ(rows.last()->values.at("tokens_per_second"), 70);
  EXPECT_FALSE(rows.finished());
}

TEST(SampleFile, IsADocumentAfterEverySample) {
  const TempFolder folder;
  SampleFile file(folder / "s.json");
  EXPECT_EQ(read_json(folder / "s.json"), Json({{"samples", Json::array()}}));
  file.add({{"a", 1}}, {{"summary", "a long text that the next one is shorter than"}});
  EXPECT_EQ(read_json(folder / "s.json")["samples"].size(), 1u);
  file.add({{"a", 2}}, {{"summary", "b"}});
  EXPECT_EQ(read_json(folder / "s.json"), Json({{"samples", {{{"a", 1}}, {{"a", 2}}}}, {"summary", "b"}}));
  file.set_rest({{"summary", "c"}, {"more", 1}});
  EXPECT_EQ(read_json(folder / "s.json")["more"], 1);
  EXPECT_NE(qtrain::testing::error_of(ErrorKind::disk, [&] { SampleFile(folder / "no/s.json"); }), "");
}

}  // namespace
}  // namespace qtrain::monitor
