#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/formats/json.h"

namespace qtrain::test {

inline const std::filesystem::path kTemplateGoldens =
    std::filesystem::path(QTRAIN_SOURCE_DIR) / "tests/text/goldens/template";

/// Tests that compare with the output of make_template_goldens.py, using its clock.
class TemplateGolden : public testing::Test {
 protected:
  void SetUp() override;
};

/// The JSON documents of a file with one per line.
std::vector<Json> read_rows(const std::filesystem::path& file);
/// The rendered text and ranges, or the error message; `input` has the members of a RenderInput.
Json outcome(const std::string& source, const Json& input);
/// Expects the outcome of a golden row; `what` is shown if it differs.
void expect_outcome(const Json& got, const Json& want, const std::string& what);

}  // namespace qtrain::test
