#include "data/listing.h"

#include <gmock/gmock.h>

#include "tests/data/support.h"

namespace qtrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Listing : public test::DataFolder {
 protected:
  /// "path: format shape rows", or "path: problem".
  std::vector<std::string> lines() const {
    std::vector<std::string> out;
    for (const ListedData& data : list_data(folder_, {}))
      out.push_back(
          data.path.lexically_relative(folder_).string() + ": " +
          (data.problem.empty() ? data.format + " " + data.shape + " " + std::to_string(data.rows) : data.problem));
    return out;
  }
};

TEST_F(Listing, FindsEveryFormatOnceAndSaysWhatIsWrong) {
  const auto golden = test::golden_folder() / "sources";
  std::filesystem::copy(golden / "saved", folder_ / "saved");
  std::filesystem::copy(golden / "parts", folder_ / "parts", std::filesystem::copy_options::recursive);
  std::filesystem::copy(golden / "json_feature.parquet", folder_ / "p.parquet");
  write("deep/er/rows.jsonl", "{\"text\":\"a\"}\n{\"text\":\"b\"}\n");
  write("array.json", "[{\"instruction\":\"i\",\"output\":\"o\"}]");
  write("pairs.csv", "prompt,completion\n1a,2b\n");
  write("broken.jsonl", "{\"text\":\"a\"\n");
  write("cut.parquet", "PAR1 and no more");
  write("other.jsonl", "{\"body\":\"a\"}\n");
  write("empty.jsonl", "");
  write("config.json", "{\n  \"hidden_size\": 3\n}\n");
  write("vocab.json", "{\"a\": 1}");
  write("notes.txt", "nothing");
  write(".hidden/rows.jsonl", "{\"text\":\"a\"}\n");
  std::filesystem::create_directory_symlink(folder_, folder_ / "deep/loop");
  std::filesystem::create_symlink("gone.jsonl", folder_ / "dangling.jsonl");
  EXPECT_THAT(
      lines(),
      ElementsAre("array.json: json instruction+output 1", HasSubstr("broken.jsonl: broken.jsonl:1"),
                  HasSubstr("cut.parquet: damaged Parquet file"), "deep/er/rows.jsonl: jsonl text 2",
                  "empty.jsonl: the file is empty", HasSubstr("other.jsonl: other.jsonl:1: unknown row shape"),
                  HasSubstr("p.parquet: p.parquet:row 1: unknown row shape"), "pairs.csv: csv prompt+completion 1",
                  "parts/test: arrow messages 2", "parts/train: arrow messages 3", "parts/validation: arrow messages 1",
                  "saved: arrow messages 25"));
}

// Files that a run wrote are not listed, but data next to them is.
TEST_F(Listing, FilesOfRunsAreNoData) {
  const std::string row = "{\"text\":\"a\"}\n";
  for (const char* name : {"metrics.jsonl", "messages.jsonl", "samples.jsonl", "checkpoint-2/rows.jsonl", "rows.jsonl"})
    for (const char* folder : {"run/", "no_run/"}) write(std::string(folder) + name, row);
  write("run/resolved_config.json", "{}");
  EXPECT_THAT(lines(),
              ElementsAre("no_run/checkpoint-2/rows.jsonl: jsonl text 1", "no_run/messages.jsonl: jsonl text 1",
                          "no_run/metrics.jsonl: jsonl text 1", "no_run/rows.jsonl: jsonl text 1",
                          "no_run/samples.jsonl: jsonl text 1", "run/rows.jsonl: jsonl text 1"));
}

TEST_F(Listing, PlainTextsAreDataWhereThereIsNoOther) {
  write("texts/a.txt", "one\ntwo\n");
  write("texts/more/b.txt", "three\n");
  write("texts/.hidden.txt", "no\n");
  write("rows/data/rows.jsonl", "{\"text\":\"a\"}\n");
  write("rows/notes.txt", "about them");
  write("model/tokenizer.json", "{\n \"a\": 1\n}");
  write("model/merges.txt", "a b\n");
  EXPECT_THAT(lines(), ElementsAre("rows/data/rows.jsonl: jsonl text 1", "texts/a.txt: text text 2",
                                   "texts/more/b.txt: text text 1"));
}

TEST_F(Listing, LargeFilesAreOnlyBegun) {
  std::string rows;
  const std::string row = "{\"text\":\"" + std::string(1 << 20, 'a') + "\"}\n";
  for (int i = 0; i < 70; ++i) rows += row;
  write("large.jsonl", rows + "broken");
  const std::vector<ListedData> all = list_data(at("large.jsonl"), {});
  ASSERT_EQ(all.size(), 1u);
  EXPECT_TRUE(all[0].estimated);
  EXPECT_NEAR(static_cast<double>(all[0].rows), 70, 2);
  EXPECT_EQ(all[0].bytes, rows.size() + 6);
  // Without this, the file would be refused as JSON Lines under the name of a plain text.
  for (std::size_t at = 0; at < rows.size(); at += row.size()) rows[at] = ' ';
  write("large.txt", rows);
  EXPECT_NEAR(static_cast<double>(list_data(at("large.txt"), {}).at(0).rows), 70, 2);
}

TEST_F(Listing, AFolderThatIsNotThereIsAnError) {
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { list_data(at("none"), {}); }), HasSubstr("no such"));
}

}  // namespace
}  // namespace qtrain
