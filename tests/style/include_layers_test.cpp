#include "tests/style/include_layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <regex>
#include <set>
#include <span>

namespace qtrain::style {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

using Folders = std::set<std::string>;

// The folders of training from the lowest layer to the highest: each may include those before it.
constexpr std::array kTrainingFolders{"train/setup", "train/checkpoint", "report",    "train/ranks", "train/step",
                                      "plan",        "train/run",        "train/tune"};

Folders with(Folders folders, std::span<const char* const> more) {
  folders.insert(more.begin(), more.end());
  return folders;
}

// The folders that the files of a folder may include besides their own. These are the folders of the root, except that
// those in train/ are listed one by one.
const std::map<std::string, Folders>& layers() {
  static const std::map<std::string, Folders> table = [] {
    const Folders config{"core", "hub", "kernels", "quant", "text", "data", "optim", "dist", "model"};
    const Folders with_config = with(config, std::array{"config"}), with_training = with(with_config, kTrainingFolders);
    const Folders app = with(with_training, std::array{"convert", "bench", "monitor"});
    std::map<std::string, Folders> folders{
        {"core", {}},
        {"hub", {"core"}},
        {"kernels", {"core"}},
        {"emulator", {"core", "kernels", "dist"}},
        {"quant", {"core", "kernels"}},
        {"text", {"core"}},
        {"data", {"core", "text"}},
        {"optim", {"core", "kernels", "quant"}},
        {"dist", {"core"}},
        {"model", {"core", "kernels", "quant"}},
        {"config", config},
        {"convert", with(with_config, std::array{"train/setup", "train/checkpoint"})},
        {"bench", {"core", "kernels", "text", "data"}},
        {"monitor", {"core"}},
        {"app", app},
        {"examples", {"core"}},
        {"tests", with(app, std::array{"emulator", "app", "examples"})},
    };
    for (std::size_t i = 0; i < kTrainingFolders.size(); ++i)
      folders[kTrainingFolders[i]] = with(with_config, std::span(kTrainingFolders).first(i));
    return folders;
  }();
  return table;
}

// The listed folder that contains a path relative to the root, "" if none does.
std::string layer_of(const std::string& path) {
  for (std::size_t end = path.find('/'); end != std::string::npos; end = path.find('/', end + 1))
    if (layers().contains(path.substr(0, end))) return path.substr(0, end);
  return {};
}

// The kernels of one backend are private to kernels/: other code includes the header of the op. What the processor
// supports is public.
bool is_private(const std::string& include) {
  if (include == "kernels/cpu/isa.h") return false;
  return include.starts_with("kernels/cpu/") || include.starts_with("kernels/cuda/");
}

// Folders that must not include another part of the same folder.
const std::map<std::string, std::string>& blind_parts() {
  static const std::map<std::string, std::string> parts{{"text/tokenizer/", "text/template/"},
                                                        {"text/template/python/", "text/template/"}};
  return parts;
}

std::string judge(const SourceFile& file, const std::string& include) {
  const std::string path = file.path.generic_string(), folder = layer_of(path), target = layer_of(include);
  if (target.empty()) return "is not a path from the root of the repository";
  if (target != folder && !layers().at(folder).contains(target)) return folder + " may not include " + target;
  if (is_private(include) && folder != "kernels" && folder != "tests")
    return "kernels of a backend are private to kernels/";
  for (const auto& [part, other] : blind_parts())
    if (path.starts_with(part) && include.starts_with(other) && !include.starts_with(part))
      return part + " may not include " + other;
  return {};
}

SourceFile code(const std::string& path, const std::string& text) {
  return {.path = path, .text = text};
}

}  // namespace

std::vector<std::string> layer_violations(const SourceFile& file) {
  static const std::regex kInclude(R"re(^\s*#\s*include\s*"([^"]*)")re");
  std::vector<std::string> found;
  if (layer_of(file.path.generic_string()).empty()) return found;
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

TEST(IncludeLayers, EveryFileOfTrainingIsInALayer) {
  for (const SourceFile& file : source_tree(QTRAIN_SOURCE_DIR)) {
    if (file.is_code() && file.folder() == "train") {
      EXPECT_NE(layer_of(file.path.generic_string()), "") << file.path;
    }
  }
}

TEST(IncludeLayers, ARoomOfTrainingSeesThoseBelowItAlone) {
  const auto violations = [](const std::string& path, const std::string& include) {
    return layer_violations(code(path, "#include \"" + include + "\"\n"));
  };
  EXPECT_THAT(violations("train/run/x.cpp", "plan/memory_plan.h"), IsEmpty());
  EXPECT_THAT(violations("plan/x.cpp", "train/step/step.h"), IsEmpty());
  EXPECT_THAT(violations("plan/x.cpp", "train/run/run_context.h"),
              ElementsAre(HasSubstr("plan may not include train/run")));
  EXPECT_THAT(violations("report/x.cpp", "plan/gpus.h"), ElementsAre(HasSubstr("report may not include plan")));
  EXPECT_THAT(violations("train/setup/x.cpp", "train/checkpoint/manifest.h"), SizeIs(1));
  EXPECT_THAT(violations("config/x.cpp", "train/setup/vocabulary.h"), SizeIs(1));
  EXPECT_THAT(violations("convert/x.cpp", "train/run/train.h"), SizeIs(1));
  EXPECT_THAT(violations("train/run/x.cpp", "train/train.h"), ElementsAre(HasSubstr("is not a path from the root")));
}

TEST(IncludeLayers, DataDoesNotSeeModel) {
  EXPECT_THAT(layer_violations(code("data/x.cpp", "#include \"core/formats/json.h\"\n#include \"model/lora.h\"\n")),
              ElementsAre(HasSubstr("data/x.cpp:2")));
}

TEST(IncludeLayers, CoreSeesNothingOfOursButItself) {
  EXPECT_THAT(layer_violations(code("core/x.h", "#include \"core/formats/json.h\"\n  #  include \"kernels/gemm.h\"\n")),
              ElementsAre(HasSubstr("core/x.h:2")));
}

TEST(IncludeLayers, BenchSeesNothingOfTheProgram) {
  EXPECT_THAT(
      layer_violations(code("bench/main.cpp", "#include \"core/formats/json.h\"\n#include \"app/answers.h\"\n")),
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

TEST(IncludeLayers, PythonMayNotIncludeJinja) {
  EXPECT_THAT(layer_violations(code("text/template/python/x.cpp", "#include \"text/template/jinja/ast.h\"\n")),
              ElementsAre(HasSubstr("text/template/python/ may not include text/template/")));
  EXPECT_THAT(layer_violations(code("text/template/jinja/x.cpp", "#include \"text/template/python/value.h\"\n")),
              IsEmpty());
}

TEST(IncludeLayers, ACommentIsNoInclude) {
  EXPECT_THAT(
      layer_violations(code("core/x.h", "// #include \"train/trainer.h\"\n/*\n#include \"train/trainer.h\"\n*/\n")),
      IsEmpty());
}

}  // namespace qtrain::style
