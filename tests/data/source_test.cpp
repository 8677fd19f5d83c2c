// Rows of CSV, Arrow and Parquet files against what datasets, pyarrow and pandas read (make_source_goldens.py).
#include <gmock/gmock.h>

#include "data/mixture.h"
#include "tests/data/support.h"

namespace qtrain {
namespace {

using ::testing::HasSubstr;

std::filesystem::path source_file(const std::string& name) {
  return test::golden_folder() / "sources" / name;
}

Json source_goldens(const char* name) {
  return read_json(source_file(name));
}

/// Equal also in the order of keys and in whether a number is whole.
void expect_rows(const RawRows& rows, const Json& expected) {
  ASSERT_EQ(rows.size(), static_cast<std::int64_t>(expected.size()));
  for (std::int64_t i = 0; i < rows.size(); ++i)
    ASSERT_EQ(dump_json(rows.parse(i)), dump_json(expected[static_cast<std::size_t>(i)])) << rows.place(i);
}

RawRows rows_in(const std::string& name, Split split = Split::train) {
  return RawRows(resolve_data_files({source_file(name).string()}, split));
}

TEST(Sources, CsvAndSavedFoldersAreReadAsDatasetsReadsThem) {
  const Json goldens = source_goldens("rows.json");
  for (const Json& golden : goldens) {
    SCOPED_TRACE(golden["file"]);
    expect_rows(rows_in(golden["file"]), golden["rows"]);
  }
  EXPECT_EQ(goldens.size(), 14u);
}

TEST(Sources, ArrowAndParquetAreReadAsPyarrowReadsThem) {
  const Json goldens = source_goldens("tables.json");
  std::size_t files = 0;
  for (const Json& golden : goldens)
    for (const Json& file : golden["files"]) {
      SCOPED_TRACE(file);
      ++files;
      expect_rows(rows_in(file), golden["rows"]);
    }
  EXPECT_EQ(files, 15u);
}

MixStrategy strategy_named(const std::string& name) {
  if (name == "first_exhausted") return MixStrategy::first_exhausted;
  return name == "all_exhausted" ? MixStrategy::all_exhausted : MixStrategy::all_exhausted_without_replacement;
}

TEST(Mixtures, RowsComeInTheOrderOfInterleaveDatasets) {
  for (const Json& golden : source_goldens("mixtures.json")) {
    MixRules rules{.strategy = strategy_named(golden["stop"])};
    if (!golden["weights"].is_null()) {
      for (const Json& weight : golden["weights"]) rules.probabilities.push_back(3 * weight.get<double>());
      rules.seed = golden["seed"];
    }
    std::vector<std::int64_t> sizes, begins;
    std::int64_t all = 0;
    for (const Json& size : golden["sizes"]) {
      begins.push_back(all);
      sizes.push_back(size);
      all += sizes.back();
    }
    const std::vector<std::int64_t> order = mixed_order(sizes, rules);
    ASSERT_EQ(order.size(), golden["size"].get<std::size_t>()) << golden["stop"] << golden["seed"];
    const Json &first = golden["first"], &last = golden["last"];
    const auto number = [&](const Json& at) { return begins[at[0].get<std::size_t>()] + at[1].get<std::int64_t>(); };
    for (std::size_t i = 0; i < first.size(); ++i) ASSERT_EQ(order[i], number(first[i])) << i;
    for (std::size_t i = 0; i < last.size(); ++i)
      ASSERT_EQ(order[order.size() - last.size() + i], number(last[i])) << i;
  }
}

}  // namespace
}  // namespace qtrain
