#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/text/template/golden_support.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

const fs::path kLanguage = test::kTemplateGoldens / "language";

/// Headers of text/template whose part of the language has cases: "python/repr".
std::vector<std::string> headers() {
  std::vector<std::string> names;
  for (const fs::directory_entry& file : fs::recursive_directory_iterator(kLanguage))
    if (file.path().extension() == ".jsonl")
      names.push_back(fs::relative(file.path(), kLanguage).replace_extension().generic_string());
  std::sort(names.begin(), names.end());
  return names;
}

class Language : public test::TemplateGolden, public testing::WithParamInterface<std::string> {};

TEST_P(Language, IsThatOfJinja) {
  EXPECT_TRUE(fs::exists(fs::path(QTRAIN_SOURCE_DIR) / "text/template" / (GetParam() + ".h")))
      << "no header has this name";
  const std::vector<Json> rows = test::read_rows(kLanguage / (GetParam() + ".jsonl"));
  ASSERT_FALSE(rows.empty());
  for (const Json& row : rows) {
    Json input = {{"messages", Json::array({{{"role", "user"}, {"content", "hi"}}})}};
    if (row.contains("extra")) input["extra"] = row["extra"];
    test::expect_outcome(test::outcome(row["source"], input), row, row["source"]);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Language, testing::ValuesIn(headers()), [](const auto& header) {
  std::string name = header.param;
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
});

}  // namespace
}  // namespace qtrain
