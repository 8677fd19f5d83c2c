#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "core/os/file.h"
#include "tests/text/template/golden_support.h"

namespace qtrain {
namespace {

using TemplateGolden = test::TemplateGolden;

TEST_F(TemplateGolden, FamiliesRenderAsInTransformers) {
  const std::vector<Json> rows = test::read_rows(test::kTemplateGoldens / "families.jsonl");
  ASSERT_GT(rows.size(), 100u);
  const Json conversations = read_json(test::kTemplateGoldens / "conversations.json");
  for (const Json& row : rows) {
    const auto file = row["template"].get<std::string>(), name = row["case"].get<std::string>();
    test::expect_outcome(test::outcome(read_text(test::kTemplateGoldens / "templates" / file), conversations.at(name)),
                         row, file + " " + name);
  }
}

/// Cases of other templates, written by make_template_goldens.py --templates into a file that an environment variable
/// names.
TEST_F(TemplateGolden, OtherTemplates) {
  const char* file = std::getenv("QTRAIN_TEMPLATE_CASES");
  if (!file) GTEST_SKIP() << "QTRAIN_TEMPLATE_CASES names no file";
  for (const Json& row : test::read_rows(file))
    test::expect_outcome(test::outcome(row["source"], row["input"]), row,
                         row["template"].get<std::string>() + " " + row["case"].get<std::string>());
}

}  // namespace
}  // namespace qtrain
