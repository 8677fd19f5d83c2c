// NOTICE names exactly the libraries that the program links.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>

#include "tests/style/source_tree.h"

namespace qtrain::style {
namespace {

// The names of libraries in CMake, and in NOTICE.
const std::map<std::string, std::string> kLibraryNames{{"fmt", "fmt"},
                                                       {"nlohmann_json", "nlohmann-json"},
                                                       {"libutf8proc", "utf8proc"},
                                                       {"yaml-cpp", "yaml-cpp"},
                                                       {"libpcre2-8", "PCRE2"},
                                                       {"libzstd", "Zstandard"},
                                                       {"liblz4", "LZ4"},
                                                       {"zlib", "zlib"},
                                                       {"sentencepiece", "sentencepiece"},
                                                       {"libcrypto", "OpenSSL"},
                                                       {"boost", "Boost"}};

std::set<std::string> linked_libraries() {
  static const std::regex kFound(
      R"((?:pkg_check_modules\(\w+ REQUIRED IMPORTED_TARGET|find_package\(|find_(?:library|path)\(\w+) *([\w-]+))");
  const std::set<std::string> elsewhere{"tests", "bench"}, tools{"PkgConfig", "Threads", "CUDAToolkit", "Python3"};
  std::set<std::string> found;
  for (const SourceFile& f : source_tree(QTRAIN_SOURCE_DIR)) {
    const bool cmake = f.path.filename() == "CMakeLists.txt" || f.path.extension() == ".cmake";
    if (!cmake || elsewhere.contains(f.folder())) continue;
    for (std::sregex_iterator it(f.text.begin(), f.text.end(), kFound), end; it != end; ++it) {
      const std::string name = (*it)[1] == "ZLIB" ? "zlib" : (*it)[1].str();
      if (tools.contains(name)) continue;
      const auto known = kLibraryNames.find(name);
      found.insert(known == kLibraryNames.end() ? name : known->second);
    }
  }
  return found;
}

TEST(Notice, NamesTheLibrariesThatTheProgramLinks) {
  std::string text;
  for (const SourceFile& f : source_tree(QTRAIN_SOURCE_DIR))
    if (f.path == "NOTICE") text = f.text;
  const std::size_t begin = text.find("The program links"), end = text.find("With the CUDA backend");
  ASSERT_NE(begin, std::string::npos);
  ASSERT_LT(begin, end);
  std::string named = text.substr(begin, end - begin);
  named = std::regex_replace(named, std::regex(R"(^[^:]*:|\([^)]*\)|\.)"), " ");
  static const std::regex kName(R"([\w-]+)");
  std::set<std::string> names;
  for (std::sregex_iterator it(named.begin(), named.end(), kName), last; it != last; ++it)
    if (it->str() != "and") names.insert(it->str());
  EXPECT_EQ(names, linked_libraries());
}

}  // namespace
}  // namespace qtrain::style
