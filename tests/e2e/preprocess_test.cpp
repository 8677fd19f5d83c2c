// `qtrain preprocess` and the token cache as users see them.
#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;

class Preprocess : public ::testing::Test {
 protected:
  Preprocess() { write_untrained_model(folder_ / "model"); }

  Json run(Json config, const std::vector<std::string>& more = {}) const {
    config["model_name_or_path"] = (folder_ / "model").string();
    config["token_cache_dir"] = (folder_ / "cache").string();
    write_file(folder_ / "run.json", dump_json(config));
    std::vector<std::string> words{"preprocess", (folder_ / "run.json").string(), "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return parse_json(qtrain_ok({.words = words}).out, "preprocess");
  }
  /// Rows of 1, 2, 3, ... tokens.
  std::string staircase(int rows) const {
    std::vector<Json> lines;
    for (int n = 1; n <= rows; ++n) lines.push_back({{"input_ids", std::vector<int>(static_cast<std::size_t>(n), 7)}});
    write_file(folder_ / "rows.jsonl", jsonl(lines));
    return (folder_ / "rows.jsonl").string();
  }
  int cached_files() const {
    int files = 0;
    for (const auto& entry : fs::directory_iterator(folder_ / "cache")) files += entry.path().extension() == ".tokens";
    return files;
  }

  TempFolder folder_;
};

TEST_F(Preprocess, IdsAndLabelsBeyondTheVocabularyAreNamedWithTheirRow) {
  write_file(folder_ / "rows.jsonl",
             jsonl({{{"input_ids", {1, 2}}}, {{"input_ids", {1, 2}}, {"labels", {1, 400}}}, {{"input_ids", {401}}}}));
  const Json config{{"model_name_or_path", (folder_ / "model").string()},
                    {"dataset_name", (folder_ / "rows.jsonl").string()},
                    {"eval_dataset_name", (folder_ / "rows.jsonl").string()},
                    {"output_dir", (folder_ / "out").string()},
                    {"token_cache_dir", (folder_ / "cache").string()}};
  write_file(folder_ / "run.json", dump_json(config));
  for (const char* command : {"preprocess", "train", "validate", "eval"}) {
    const Outcome outcome = qtrain({.words = {command, (folder_ / "run.json").string()}});
    EXPECT_THAT(outcome.err + outcome.out, HasSubstr("create them with this model's tokenizer")) << command;
    EXPECT_EQ(outcome.code, 3) << command;
    EXPECT_THAT(outcome.err + outcome.out,
                HasSubstr("rows.jsonl:2: label 400 is outside the model's vocabulary of 400"))
        << command;
  }
}

TEST_F(Preprocess, RowsWithEmptyAnswersThatAreSkippedAreCounted) {
  write_file(folder_ / "rows.jsonl",
             jsonl({{{"prompt", "q"}, {"completion", "a"}}, {{"prompt", "q"}, {"completion", ""}}}));
  const Json config{{"dataset_name", (folder_ / "rows.jsonl").string()},
                    {"output_dir", (folder_ / "out").string()},
                    {"skip_empty_answers", true}};
  for (const char* from : {"made", "cached"}) EXPECT_EQ(run(config).at("empty_answers"), 1) << from;
  const Outcome text = qtrain_ok({.words = {"preprocess", (folder_ / "run.json").string()}});
  EXPECT_THAT(text.out, HasSubstr("skipped               1 row with an empty answer, first "));
  EXPECT_THAT(text.out, HasSubstr("rows.jsonl:2: the completion is empty"));
}

TEST_F(Preprocess, DumpsTheRowsThatTrlMakes) {
  const fs::path golden = source_folder() / "tests/data/golden";
  for (const char* name : {"messages-assistant-bfd", "text_pair-none", "messages-wrapped"}) {
    Json config;
    for (const Json& c : read_json(golden / "cases.json"))
      if (c.at("name") == name) {
        config = c.at("options");
        config["dataset_name"] = (golden / "inputs" / c.at("file").get<std::string>()).string();
      }
    run(config, {"--dump", (folder_ / "dump.jsonl").string()});
    EXPECT_EQ(read_jsonl(folder_ / "dump.jsonl"), read_jsonl(golden / "rows" / (std::string(name) + ".jsonl"))) << name;
  }
}

TEST_F(Preprocess, TellsAboutLengths) {
  const std::string rows = staircase(100);
  const Json told = run({{"dataset_name", rows}, {"max_length", 90}, {"per_device_train_batch_size", 100}});
  const Json expected{{"count", 100},
                      {"min", 1},
                      {"mean", 50.5},
                      {"p50", 50},
                      {"p95", 95},
                      {"p99", 99},
                      {"max", 100},
                      {"recommended_max_length", 128},
                      {"truncated_rows", 10},
                      {"truncated_share", 0.1},
                      {"truncated_tokens", 55},
                      {"dropped_rows", 0}};
  for (const auto& [key, value] : expected.items()) EXPECT_EQ(told.at(key), value) << key;
  EXPECT_EQ(told.at("first_truncated").size(), 10u);
  EXPECT_EQ(told.at("first_truncated")[0], (Json{{"place", rows + ":91"}, {"tokens", 91}}));
  // Row n of 100 in one batch is padded to 90 tokens: 9000 places, 5050 - 55 of them tokens.
  EXPECT_NEAR(told.at("padding_waste").get<double>(), 1 - 4995.0 / 9000, 1e-12);
  EXPECT_TRUE(told.at("packing_density").is_null());
  std::int64_t in_bars = 0;
  for (const Json& bar : told.at("histogram")) in_bars += bar.at("rows").get<std::int64_t>();
  EXPECT_EQ(in_bars, 100);

  // One row of 60 and pairs of 59 + 1, 58 + 2, ...: 30 full rows and one of 30.
  const Json packed = run({{"dataset_name", staircase(60)}, {"max_length", 60}, {"packing", true}});
  EXPECT_EQ(packed.at("rows"), 31);
  EXPECT_NEAR(packed.at("packing_density").get<double>(), 1830.0 / (31 * 60), 1e-12);
}

TEST_F(Preprocess, RowsAreFoundAgainUntilSomethingChanges) {
  const std::string rows = staircase(20);
  const Json config{{"dataset_name", rows}, {"max_length", 32}};
  const Json first = run(config);
  EXPECT_EQ(run(config).at("fingerprint"), first.at("fingerprint"));
  EXPECT_EQ(cached_files(), 1);
  run({{"dataset_name", rows}, {"max_length", 16}});
  EXPECT_EQ(cached_files(), 2) << "an option";
  staircase(21);
  EXPECT_NE(run(config).at("fingerprint"), first.at("fingerprint"));
  EXPECT_EQ(cached_files(), 3) << "the rows";
  write_file(folder_ / "model/chat_template.jinja", "{{ messages[0].content }}");
  run(config);
  EXPECT_EQ(cached_files(), 4) << "the template";
}

TEST_F(Preprocess, ADamagedFileIsMadeAgain) {
  const Json config{{"dataset_name", staircase(20)}};
  const Json first = run(config);
  for (const auto& entry : fs::directory_iterator(folder_ / "cache")) {
    if (entry.path().extension() != ".tokens") continue;
    std::string bytes = bytes_of(entry.path());
    bytes[bytes.size() - 200] = static_cast<char>(bytes[bytes.size() - 200] ^ 1);
    write_file(entry.path(), bytes);
  }
  const Outcome again = qtrain_ok({.words = {"preprocess", (folder_ / "run.json").string(), "--json"}});
  EXPECT_THAT(again.err, HasSubstr("damaged"));
  EXPECT_EQ(parse_json(again.out, "preprocess").at("fingerprint"), first.at("fingerprint"));
}

TEST_F(Preprocess, ARunTellsHowLongItWaitedForData) {
  train_ok(folder_.path(), tiny_run(folder_ / "out"), {"max_steps=2", "logging_steps=1", "dataloader_num_workers=2"});
  for (const Json& row : read_jsonl(folder_ / "out/metrics.jsonl")) {
    if (!row.contains("loss")) continue;
    EXPECT_GE(row.at("data_wait").get<double>(), 0);
    EXPECT_LE(row.at("data_wait").get<double>(), 1);
  }
}

}  // namespace
}  // namespace qtrain::e2e
