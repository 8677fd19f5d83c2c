#include "tests/style/include_layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>

namespace qtrain::style {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Which folders the files of a folder may include, beside their own.
const std::map<std::string, std::set<std::string>>& layers() {
  static const std::set<std::string> model{"core", "kernels", "quant"};
  static const std::set<std::string> config{"core", "kernels", "quant", "text", "data", "optim", "dist", "model"};
  const auto with = [](std::set<std::string> folders, std::initializer_list<const char*> more) {
    for (const char* folder : more) folders.insert(folder);
    return folders;
  };
  static const std::set<std::string> all =
      with(config, {"emulator", "config", "train", "convert", "bench", "monitor", "app", "examples"});
  static const std::map<std::string, std::set<std::string>> table{
      {"core", {}},
      {"kernels", {"core"}},
      {"emulator", {"core", "kernels", "dist"}},
      {"quant", {"core", "kernels"}},
      {"text", {"core"}},
      {"data", {"core", "text"}},
      {"optim", {"core", "kernels", "quant"}},
      {"dist", {"core"}},
      {"model", model},
      {"config", config},
      {"train", with(config, {"config"})},
      {"convert", with(config, {"config", "train"})},
      {"bench", {"core", "kernels", "text", "data"}},
      {"monitor", {"core"}},
      {"app", with(config, {"config", "train", "convert", "bench", "monitor"})},
      {"examples", {"core"}},
      {"tests", all},
  };
  return table;
}

// The kernels of one backend are private to kernels/: callers go through the header of the op. What the processor can
// do is for all to ask.
bool is_private(const std::string& include) {
  if (include == "kernels/cpu/isa.h") return false;
  return include.starts_with("kernels/cpu/") || include.starts_with("kernels/cuda/");
}

// Parts of a folder that see nothing of another part of it.
const std::map<std::string, std::string>& blind_parts() {
  static const std::map<std::string, std::string> parts{{"text/tokenizer/", "text/template/"},
                                                        {"text/template/python/", "text/template/"}};
  return parts;
}

std::string judge(const SourceFile& file, const std::string& include) {
  const std::string folder = file.folder(), path = file.path.generic_string();
  const std::size_t slash = include.find('/');
  const std::string target = include.substr(0, slash);
  if (slash == std::string::npos || !layers().contains(target)) return "is not a path from the root of the repository";
  if (target != folder && !layers().at(folder).contains(target)) return folder + " may not include " + target;
  if (is_private(include) && folder != "kernels" && folder != "tests")
    return "kernels of a backend are private to kernels/";
  for (const auto& [part, other] : blind_parts())
    if (path.starts_with(part) && include.starts_with(other) && !include.starts_with(part))
      return part + " sees nothing of " + other;
  return {};
}

SourceFile code(const std::string& path, const std::string& text) {
  return {.path = path, .text = text};
}

}  // namespace

std::vector<std::string> layer_violations(const SourceFile& file) {
  static const std::regex kInclude(R"re(^\s*#\s*include\s*"([^"]*)")re");
  std::vector<std::string> found;
  if (!layers().contains(file.folder())) return found;
  const std::string text = without_comments(file.text, Keep::literals);
  std::size_t line = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string one = text.substr(begin, end - begin);
    std::smatch match;
    ++line;
    begin = end + 1;
    if (!std::regex_search(one, match, kInclude)) continue;
    const std::string complaint = judge(file, match[1]);
    if (!complaint.empty())
      found.push_back(file.path.string() + ":" + std::to_string(line) + ": \"" + match[1].str() + "\": " + complaint);
  }
  return found;
}

TEST(IncludeLayers, AFolderIncludesOnlyFoldersAboveIt) {
  std::size_t files = 0;
  for (const SourceFile& file : source_tree(QTRAIN_SOURCE_DIR)) {
    if (!file.is_code()) continue;
    ++files;
    EXPECT_THAT(layer_violations(file), IsEmpty());
  }
  EXPECT_GT(files, 50u);
}

TEST(IncludeLayers, DataDoesNotSeeModel) {
  EXPECT_THAT(layer_violations(code("data/x.cpp", "#include \"core/json.h\"\n#include \"model/lora.h\"\n")),
              ElementsAre(HasSubstr("data/x.cpp:2")));
}

TEST(IncludeLayers, CoreSeesNothingOfOursButItself) {
  EXPECT_THAT(layer_violations(code("core/x.h", "#include \"core/json.h\"\n  #  include \"kernels/gemm.h\"\n")),
              ElementsAre(HasSubstr("core/x.h:2")));
}

TEST(IncludeLayers, BenchSeesNothingOfTheProgram) {
  EXPECT_THAT(layer_violations(code("bench/main.cpp", "#include \"core/json.h\"\n#include \"app/answers.h\"\n")),
              ElementsAre(HasSubstr("bench/main.cpp:2")));
}

TEST(IncludeLayers, PathsBeginAtTheRoot) {
  EXPECT_THAT(layer_violations(code("core/x.cpp", "#include \"json.h\"\n")), ElementsAre(HasSubstr("from the root")));
  EXPECT_THAT(layer_violations(code("core/x.cpp", "#include \"../core/json.h\"\n")),
              ElementsAre(HasSubstr("from the root")));
}

TEST(IncludeLayers, KernelsOfABackendArePrivate) {
  EXPECT_THAT(layer_violations(code("model/x.cpp", "#include \"kernels/cpu/simd.h\"\n")),
              ElementsAre(HasSubstr("private")));
  EXPECT_THAT(layer_violations(code("kernels/cpu/x.cpp", "#include \"kernels/cpu/simd.h\"\n")), IsEmpty());
}

TEST(IncludeLayers, PythonSeesNothingOfJinja) {
  EXPECT_THAT(layer_violations(code("text/template/python/x.cpp", "#include \"text/template/jinja/ast.h\"\n")),
              ElementsAre(HasSubstr("sees nothing of text/template/")));
  EXPECT_THAT(layer_violations(code("text/template/jinja/x.cpp", "#include \"text/template/python/value.h\"\n")),
              IsEmpty());
}

TEST(IncludeLayers, ACommentIsNoInclude) {
  EXPECT_THAT(
      layer_violations(code("core/x.h", "// #include \"train/trainer.h\"\n/*\n#include \"train/trainer.h\"\n*/\n")),
      IsEmpty());
}

}  // namespace qtrain::style
