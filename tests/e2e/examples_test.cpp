// The programs that write the data of the examples.
#include <set>

#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

Outcome write_cypher(const fs::path& folder) {
  const std::string dataset = (fs::path(program()).parent_path() / "cypher_dataset").string();
  return Process({.argv = {dataset, "--output", folder.string()}}).wait();
}

std::vector<std::string> queries_of(const fs::path& file) {
  std::vector<std::string> queries;
  const std::vector<Json> rows = read_jsonl(file);
  for (const Json& row : rows) queries.push_back(row.at("messages").back().at("content"));
  return queries;
}

TEST(CypherDataset, HoldsOutWhatItAsks) {
  const TempFolder folder;
  ASSERT_EQ(write_cypher(folder / "data").code, 0);
  const auto training = queries_of(folder / "data/train.jsonl");
  EXPECT_EQ(training.size(), 3000u);
  const std::set<std::string> learned(training.begin(), training.end());
  for (const char* name : {"eval.jsonl", "eval_other_seed.jsonl"}) {
    const auto asked = queries_of(folder / "data" / name);
    EXPECT_EQ(asked.size(), 200u);
    for (const std::string& query : asked) EXPECT_FALSE(learned.contains(query)) << name << ": " << query;
  }
  EXPECT_NE(bytes_of(folder / "data/eval.jsonl"), bytes_of(folder / "data/eval_other_seed.jsonl"));
  ASSERT_EQ(write_cypher(folder / "again").code, 0);
  for (const char* name : {"train.jsonl", "eval.jsonl", "eval_other_seed.jsonl", "questions.jsonl"})
    EXPECT_EQ(bytes_of(folder / "data" / name), bytes_of(folder / "again" / name)) << name;
}

}  // namespace
}  // namespace qtrain::e2e
