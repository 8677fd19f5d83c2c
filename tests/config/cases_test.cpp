// Pairs of files: cases/NAME/config.json (or .yaml), with optional command-line arguments in arguments.json and other
// files, and the resolved config in expected.json. With QTRAIN_WRITE_EXPECTED=1, the expected files are rewritten. They
// are packed in cases.tar.xz: `scripts/goldens.py pack` and then `diff` show what has changed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "config/config.h"
#include "core/os/file.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

const fs::path kCases = fs::path(QTRAIN_SOURCE_DIR) / "tests/config/cases";

std::vector<std::string> case_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kCases))
    if (entry.is_directory()) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

Overrides overrides_in(const fs::path& folder) {
  Overrides overrides;
  if (!fs::exists(folder / "arguments.json")) return overrides;
  const Json arguments = read_json(folder / "arguments.json");
  for (const auto& [key, value] : arguments.items()) overrides.emplace_back(key, value.get<std::string>());
  return overrides;
}

/// {key: [value, origin]} of the keys that are given or differ from the canonical default.
Json values_that_differ(const Json& resolved) {
  static const Json plain = resolved_json(parse_config("{}", "c.json")).at("values");
  Json values = Json::object();
  for (const auto& [key, entry] : resolved.at("values").items())
    if (!entry.at("origin").get<std::string>().starts_with("default") || entry.at("value") != plain.at(key).at("value"))
      values[key] = {entry.at("value"), entry.at("origin")};
  return values;
}

Json what_it_comes_to(const fs::path& folder) {
  const fs::path yaml = folder / "config.yaml", file = fs::exists(yaml) ? yaml : folder / "config.json";
  const CheckedConfig checked = check_config(file, overrides_in(folder));
  if (!checked.problems.empty()) {
    Json problems = Json::array();
    for (const ErrorText& text : checked.problems) problems.push_back(Error(ErrorKind::usage, text).what());
    return {{"problems", problems}};
  }
  const Json resolved = resolved_json(*checked.config);
  Json out{{"dialect", resolved.at("dialect")}, {"values", values_that_differ(resolved)}};
  for (const char* said : {"notes", "warnings", "ignored"})
    if (!resolved.at(said).empty()) out[said] = resolved.at(said);
  return out;
}

/// The document as text, with each member, or entry of a member, on its own line.
std::string lines_of(const Json& expected) {
  std::string text = "{";
  for (const auto& [name, part] : expected.items()) {
    text += (text.size() > 1 ? ",\n  \"" : "\n  \"") + name + "\": ";
    if (!part.is_structured()) {
      text += dump_json(part);
      continue;
    }
    std::string entries;
    for (const auto& [key, value] : part.items())
      entries +=
          (entries.empty() ? "\n    " : ",\n    ") + (part.is_object() ? dump_json(key) + ": " : "") + dump_json(value);
    text += part.is_object() ? "{" + entries + "\n  }" : "[" + entries + "\n  ]";
  }
  return text + "\n}\n";
}

class ConfigCases : public ::testing::TestWithParam<std::string> {};

std::string without(std::string text, const std::string& part) {
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos;) text.erase(at, part.size());
  return text;
}

TEST_P(ConfigCases, ComesToWhatIsExpected) {
  const fs::path folder = kCases / GetParam();
  std::string text = lines_of(what_it_comes_to(folder));
  text = without(without(text, folder.string() + "/"), kCases.string() + "/");
  if (std::getenv("QTRAIN_WRITE_EXPECTED") != nullptr) write_file(folder / "expected.json", text);
  EXPECT_EQ(text, read_text(folder / "expected.json"));
}

INSTANTIATE_TEST_SUITE_P(Files, ConfigCases, ::testing::ValuesIn(case_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace qtrain
