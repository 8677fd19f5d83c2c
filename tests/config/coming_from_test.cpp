// The tables of docs/guides/coming_from.md show correctly what a key of another tool becomes.
#include <algorithm>
#include <map>
#include <regex>
#include <sstream>

#include "config/yaml.h"
#include "core/os/file.h"
#include "tests/config/recipes.h"

namespace qtrain {
namespace {

/// A table row: `key: value` in the other tool and in qtrain.
struct TranslatedKey {
  std::string tool, there, here;
};

std::vector<TranslatedKey> translated_keys(const std::string& page) {
  static const std::regex kRow(R"(\| `([^`]+)` \| `([^`]+)` \|)");
  std::vector<TranslatedKey> rows;
  std::istringstream lines(page);
  std::string tool;
  for (std::string line; std::getline(lines, line);) {
    std::smatch m;
    if (line.starts_with("## ")) tool = line.substr(3);
    if (std::regex_match(line, m, kRow)) rows.push_back({tool, m[1], m[2]});
  }
  return rows;
}

/// A config with only this key; for DeepSpeed, the key is inside an object.
std::string config_with(const TranslatedKey& row) {
  static const std::map<std::string, std::string> kDialects{
      {"axolotl", "axolotl"}, {"LLaMA-Factory", "llamafactory"}, {"ModelForge", "modelforge"}};
  if (row.tool != "DeepSpeed") {
    const auto at = kDialects.find(row.tool);
    return "dialect: " + (at == kDialects.end() ? "hf" : at->second) + "\n" + row.there + "\n";
  }
  const std::size_t colon = row.there.find(": ");
  std::string key = "/deepspeed/" + row.there.substr(0, colon);
  std::ranges::replace(key, '.', '/');
  Json config;
  config[Json::json_pointer(key)] = yaml_plain_value(row.there.substr(colon + 2));
  return dump_json(config);
}

TEST(ComingFrom, EachRowIsWhatTheProgramDoes) {
  std::map<std::string, int> rows;
  const std::string page = read_text(std::string(QTRAIN_SOURCE_DIR) + "/docs/guides/coming_from.md");
  for (const TranslatedKey& row : translated_keys(page)) {
    ++rows[row.tool];
    const Json resolved = resolved_json(test::recipe(config_with(row)));
    const Json here = parse_yaml(row.here, "here").value;
    for (const auto& [key, value] : here.items())
      EXPECT_EQ(resolved.at("values").at(key).at("value"), value) << row.tool << ": " << row.there;
  }
  for (const char* tool : {"TRL", "Unsloth", "axolotl", "LLaMA-Factory", "ModelForge", "DeepSpeed"})
    EXPECT_GE(rows[tool], 5) << tool;
}

}  // namespace
}  // namespace qtrain
