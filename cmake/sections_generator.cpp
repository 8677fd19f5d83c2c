// sections_generator FIELDS.yaml TEMPLATE OUTPUT: writes the sections of Config. Every row of fields.yaml becomes a
// member, with its type and default, at its section's place in TEMPLATE (sections.h.in). Run by the build.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

/// The member of Config for the rows of a section, and its type.
struct Section {
  std::string type, member;
};

const std::map<std::string, Section>& sections() {
  static const std::map<std::string, Section> all{{"Model", {"ModelSection", "model"}},
                                                  {"Data", {"DataSection", "data"}},
                                                  {"LoRA", {"LoraSection", "lora"}},
                                                  {"Quantization", {"QuantSection", "quant"}},
                                                  {"Training", {"TrainingSection", "training"}},
                                                  {"Logging, evaluation, checkpoints", {"TrainingSection", "training"}},
                                                  {"Hub", {"HubSection", "hub"}},
                                                  {"Machine", {"RunSection", "run"}}};
  return all;
}

/// The texts to insert into the template, by placeholder.
using Places = std::map<std::string, std::string>;

// The types of fields.yaml in C++; every other name is an enumeration of types.h.
std::string cpp_type(const std::string& type) {
  static const std::map<std::string, std::string> all{
      {"bool", "bool"},        {"integer", "std::int64_t"},           {"number", "double"},
      {"text", "std::string"}, {"texts", "std::vector<std::string>"}, {"integers", "std::vector<std::int64_t>"},
      {"object", "Json"},      {"objects", "std::vector<Json>"}};
  const auto at = all.find(type);
  return at == all.end() ? type : at->second;
}

std::string cpp_default(const std::string& type, const YAML::Node& value) {
  if (!value) return type == "object" ? " = Json::object()" : "";
  if (type == "text") return fmt::format(" = \"{}\"", value.Scalar());
  if (cpp_type(type) == type && type != "bool") return fmt::format(" = value_named<{}>(\"{}\")", type, value.Scalar());
  return " = " + value.Scalar();
}

void add_member(Places& places, const Section& section, const YAML::iterator::value_type& row) {
  constexpr std::string_view kOrNull = " or null";
  const auto name = row.first.as<std::string>();
  auto type = row.second["type"].as<std::string>();
  const bool optional = type.ends_with(kOrNull);
  if (optional) type.resize(type.size() - kOrNull.size());
  const std::string in_cpp = optional ? fmt::format("std::optional<{}>", cpp_type(type)) : cpp_type(type);
  const std::string value = optional && !row.second["default"] ? "" : cpp_default(type, row.second["default"]);
  places["members_" + section.type] += fmt::format("  {} {}{};\n", in_cpp, name, value);
  places["MEMBER_VISITS"] += fmt::format("  visit(&Config::{}, &{}::{});\n", section.member, section.type, name);
}

Places places_of(const YAML::Node& fields) {
  Places places;
  for (const auto& words : fields["words"])
    places["ENUMERATION_NAMES"] +=
        fmt::format("template <>\ninline constexpr auto kNamesOf<{}> = std::to_array<std::string_view>({{\"{}\"}});\n",
                    words.first.as<std::string>(), fmt::join(words.second.as<std::vector<std::string>>(), "\", \""));
  for (const auto& [name, section] : sections()) {
    if (!fields[name]) throw std::runtime_error("fields.yaml has no section " + name);
  }
  for (const auto& part : fields) {
    const auto section = sections().find(part.first.as<std::string>());
    if (section == sections().end()) continue;
    for (const auto& row : part.second) add_member(places, section->second, row);
  }
  return places;
}

std::string read(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(std::string(path) + " cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string filled(std::string text, const Places& places) {
  for (const auto& [name, value] : places) {
    const std::string place = "@" + name + "@";
    const std::size_t at = text.find(place);
    if (at == std::string::npos) throw std::runtime_error("the template has no " + place);
    text.replace(at, place.size(), value);
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 4) throw std::runtime_error("usage: sections_generator FIELDS.yaml TEMPLATE OUTPUT");
    const std::string text = filled(read(argv[2]), places_of(YAML::LoadFile(argv[1])));
    std::ofstream file(argv[3], std::ios::binary);
    file << text << std::flush;
    if (!file) throw std::runtime_error(std::string(argv[3]) + " cannot be written");
  } catch (const std::exception& e) {
    std::cerr << "sections_generator: " << e.what() << "\n";
    return 1;
  }
}
