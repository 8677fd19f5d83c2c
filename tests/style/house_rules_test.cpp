#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "tests/style/source_tree.h"

namespace qtrain::style {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A pattern that files must not contain, and the exceptions.
struct Rule {
  std::string_view name;
  std::string pattern;
  std::set<std::string> allowed_folders;
  std::set<std::string> allowed_files;
};

// Joins two halves of a word that this file itself must not contain.
std::string halves(std::string_view a, std::string_view b) {
  return std::string(a) + std::string(b);
}

// Rules for code, ignoring comments and literals.
std::vector<Rule> code_rules() {
  return {
      {.name = "kernels are launched in one place", .pattern = "<<<", .allowed_files = {"kernels/cuda/launch.cuh"}},
      {.name = "only the log prints",
       .pattern = R"re(\b(v?f?printf|f?puts|putchar|perror)\s*\(|std::(cout|cerr|clog)\b|fmt::print\b)re",
       .allowed_folders = {"tests", "bench", "cmake"},  // cmake: a program that only the build runs
       .allowed_files = {"core/log.h", "core/log.cpp"}},
      {.name = "nothing ends the process but main",
       .pattern = R"re(\b(exit|_exit|_Exit|quick_exit|abort|terminate)\s*\()re",
       .allowed_folders = {"tests", "bench"},
       .allowed_files = {"core/os/shrunk_file.cpp", "core/os/stop.cpp", "dist/child.cpp"}},  // handlers; a child
      {.name = "no conditional compilation outside the build header",
       .pattern = R"re(^\s*#\s*(if|ifdef|ifndef|elif|else)\b)re",
       .allowed_files = {"core/build.h"}},
      {.name = "no thread_local", .pattern = R"re(\bthread_local\b)re"},
      {.name = "no using-directive for std", .pattern = R"re(\busing\s+namespace\s+std\b)re"},
      // In C++20 the temporary is destroyed before the first iteration, so give the whole a name first.
      {.name = "no loop over a part of a temporary",
       .pattern = R"re(\bfor\s*\([^;]*\s:\s\w*(read|parse|load)\w*\(.*\)\s*(\.\w+\(|\[))re"},
      // They throw for a loop of links or a name that is too long: use core/os/paths.h, or an error code.
      {.name = "no question about a path that throws",
       .pattern =
           R"re(\b(filesystem|stdfs|fs)::(exists|is_directory|is_regular_file|absolute)\((?!there\)|status\)|fs::symlink_status)(?:[^(),]|\([^()]*\))*\))re",
       .allowed_folders = {"tests", "bench", "examples"},
       .allowed_files = {"core/os/paths.cpp"}},
      // Keys that come from files can be chosen to collide for any other hash.
      {.name = "hash tables have a keyed hash, unless their keys are pointers",
       .pattern = R"re(\bunordered_(multi)?(map|set)<(?![^<>,]*\*)(?!.*KeyedHash))re",
       .allowed_folders = {"tests", "bench", "examples"},
       .allowed_files = {"core/param_store.h"}},  // names that the program chooses
      {.name = "no raw new or delete", .pattern = R"re((=|return|\()\s*new\b|\bdelete\s+\w|\bdelete\[\])re"},
  };
}

// Rules for every text file, including comments.
std::vector<Rule> text_rules() {
  return {
      {.name = "nothing is left to do",
       .pattern =
           R"re(\b()re" + halves("TO", "DO") + "|" + halves("FIX", "ME") + "|" + halves("HA", "CK") + R"re()\b)re"},
      {.name = "no path of one machine",
       .pattern = "(^|[\\s\"'=`(])/(" + halves("wo", "rk") + "|" + halves("ro", "ot") + "|" + halves("tm", "p") + ")/"},
      {.name = "no registry by its host name",
       .pattern = halves("py", "pi") + R"(\.(org|python)|)" + halves("python", "hosted") + "|" +
                  halves("deb", R"(\.debian\.org)") + "|" + halves("archive", R"(\.ubuntu)")},
      {.name = "the words of docs/glossary.md",
       .pattern = R"re(\b()re" + halves("[Mm]atrix pro", "ducts?") + "|" + halves("gra", "in") + "|" +
                  halves("mail", "box") + "|" + halves("ad", "joins") + "|" + halves("kMo", "st[A-Z]\\w*") + "|" +
                  halves("(quanti|initiali|normali|seriali|optimi)", "s(e|ed|es|ing|ation)") + R"re()\b)re"},
      {.name = "comments begin with a noun or a verb",
       .pattern = R"re((//[/!]?<?|(^|\s)#) ?)re" + halves("O", "f [a-z]")},
      {.name = "plain English",
       .pattern = halves("is anot", "her one") + "|" + halves("held aga", "inst") + "|" +
                  halves("what it beg", "ins with") + "|" + halves("need not ", "be here") + "|" +
                  halves("again lea", "ves") + "|" + halves("\"(\\\\n)?the", "re: ") + "|" + halves("what is n", "o ") +
                  "|" + halves("comes to the res", "ult") + "|" + halves("goes on beh", "ind")},
      {.name = "no tabs or trailing blanks", .pattern = "\t|[ \r]$", .allowed_files = {"Makefile.docs"}},
  };
}

bool excepted(const Rule& rule, const SourceFile& file) {
  return rule.allowed_folders.contains(file.folder()) || rule.allowed_files.contains(file.path.generic_string());
}

std::vector<std::string> violations(const std::vector<Rule>& rules, const SourceFile& file, const std::string& text) {
  std::vector<std::string> found;
  for (const Rule& rule : rules) {
    if (excepted(rule, file)) continue;
    for (const std::string& line : matching_lines(text, {.pattern = rule.pattern, .place = file.path.generic_string()}))
      found.push_back(std::string(rule.name) + ": " + line);
  }
  return found;
}

std::vector<std::string> code_violations(const SourceFile& file) {
  return violations(code_rules(), file, without_comments(file.text));
}

// Files whose bytes are the output of a reference library, or a copied text.
bool is_verbatim(const SourceFile& file) {
  const std::string path = file.path.generic_string();
  return path.find("golden") != path.npos || file.path.filename() == "LICENSE";
}

std::vector<SourceFile> code_files() {
  std::vector<SourceFile> files = source_tree(QTRAIN_SOURCE_DIR);
  std::erase_if(files, [](const SourceFile& f) { return !f.is_code(); });
  return files;
}

// "qtrain::Tensor" for every type that a file defines in a named namespace.
std::set<std::string> types_of(const SourceFile& file) {
  static const std::regex opening(R"(^namespace ([\w:]*) ?\{$)"), closing(R"(^\}  // namespace\b)"),
      type(R"(^(?:struct|class|enum class|union) (\w+)(?=$| )[^;]*$)");
  std::set<std::string> types;
  std::vector<std::string> spaces;
  std::istringstream lines(file.text);
  for (std::string line; std::getline(lines, line);) {
    std::smatch m;
    if (std::regex_search(line, m, opening)) spaces.push_back(m[1]);
    if (std::regex_search(line, closing) && !spaces.empty()) spaces.pop_back();
    if (!spaces.empty() && std::count(spaces.begin(), spaces.end(), "") == 0 && std::regex_search(line, m, type))
      types.insert(spaces.back() + "::" + m[1].str());
  }
  return types;
}

/// Source files that break the rule in folders where it applies: what x.h declares is defined in x.cpp, and tested in
/// x_test.cpp or x_..._test.cpp at the corresponding place.
std::vector<std::string> without_header(const std::set<std::string>& paths) {
  static const std::regex kNamed(R"((?:tests/((?:data|text)/.*)_test|((?:config|data|text)/.*))\.cpp)");
  std::vector<std::string> found;
  for (const std::string& path : paths) {
    std::smatch m;
    if (!std::regex_match(path, m, kNamed)) continue;
    const std::string name = m[m[1].matched ? 1 : 2].str() + "_";
    bool fine = false;
    for (std::size_t at = name.find('_'); at != name.npos; at = name.find('_', at + 1))
      fine = fine || paths.contains(name.substr(0, at) + ".h");
    if (!fine) found.push_back(path);
  }
  return found;
}

SourceFile file(const std::string& path, const std::string& text) {
  return {.path = path, .text = text};
}

}  // namespace

TEST(HouseRules, TheCodeKeepsThem) {
  for (const SourceFile& f : code_files()) EXPECT_THAT(code_violations(f), IsEmpty());
}

TEST(HouseRules, TheTextsKeepThem) {
  for (const SourceFile& f : source_tree(QTRAIN_SOURCE_DIR)) {
    EXPECT_THAT(is_verbatim(f) ? std::vector<std::string>{} : violations(text_rules(), f, f.text), IsEmpty());
  }
}

// If two types have the same name, the linker keeps the functions of either one.
TEST(HouseRules, ANameMeansOneType) {
  std::map<std::string, std::filesystem::path> defined;
  for (const SourceFile& f : code_files()) {
    const std::string path = f.path.generic_string();
    const bool twin = path.find("/native/") != path.npos || path.starts_with("kernels/cpu/arm/target/");
    if (twin) continue;  // emulator/ and kernels/cpu/x86/ have the same types
    for (const std::string& type : types_of(f)) {
      const auto [first, is_new] = defined.emplace(type, f.path);
      EXPECT_TRUE(is_new) << type << " is defined in " << first->second << " and in " << f.path;
    }
  }
  EXPECT_GT(defined.size(), 100u);
}

TEST(HouseRules, TypesAreFoundWhereTheLinkerSeesThem) {
  EXPECT_THAT(
      types_of(file("a.h",
                    "namespace qtrain {\nstruct A {\n};\nclass B;\nnamespace {\nstruct C {\n};\n}  // namespace\n"
                    "class D : public A {\n};\n}  // namespace qtrain\n")),
      ElementsAre("qtrain::A", "qtrain::D"));
}

TEST(HouseRules, SourcesAndTestsAreNamedAfterAHeader) {
  EXPECT_THAT(without_header({"data/a.cpp", "data/b.h", "data/b.cpp", "data/b_c.cpp", "tests/data/b_c_test.cpp",
                              "tests/data/c_test.cpp"}),
              ElementsAre("data/a.cpp", "tests/data/c_test.cpp"));
  std::set<std::string> paths;
  for (const SourceFile& f : code_files()) paths.insert(f.path.generic_string());
  EXPECT_THAT(without_header(paths), IsEmpty());
}

TEST(HouseRules, HeadersHaveAGuard) {
  for (const SourceFile& f : code_files()) {
    const bool header = f.path.extension() == ".h" || f.path.extension() == ".cuh";
    EXPECT_TRUE(!header || f.text.starts_with("#pragma once\n")) << f.path;
  }
}

TEST(HouseRules, FilesOfCodeStayReadable) {
  constexpr std::ptrdiff_t kMaxLines = 450;
  for (const SourceFile& f : code_files())
    EXPECT_LE(std::count(f.text.begin(), f.text.end(), '\n'), kMaxLines) << f.path;
}

TEST(HouseRules, ALaunchOutsideItsPlaceIsFound) {
  EXPECT_THAT(code_violations(file("kernels/cuda/x.cu", "void f() {\n  k<<<1, 2>>>();\n}\n")),
              ElementsAre(HasSubstr("x.cu:2")));
  EXPECT_THAT(code_violations(file("kernels/cuda/launch.cuh", "k<<<1, 2>>>();\n")), IsEmpty());
}

TEST(HouseRules, PrintingAndExitingAreFound) {
  EXPECT_THAT(code_violations(file("data/x.cpp", "std::printf(\"a\");\n")), ElementsAre(HasSubstr("only the log")));
  EXPECT_THAT(code_violations(file("data/x.cpp", "std::cout << 1;\n")), ElementsAre(HasSubstr("only the log")));
  EXPECT_THAT(code_violations(file("data/x.cpp", "std::exit(1);\n")), ElementsAre(HasSubstr("ends the process")));
  EXPECT_THAT(code_violations(file("data/x.cpp", "std::snprintf(b, 3, \"printf(\"); // exit(1)\n")), IsEmpty());
  EXPECT_THAT(code_violations(file("core/log.cpp", "std::fprintf(f, \"\");\n")), IsEmpty());
}

TEST(HouseRules, ConditionalCompilationIsFound) {
  EXPECT_THAT(code_violations(file("core/x.h", "#pragma once\n# ifdef A\n#endif\n")), ElementsAre(HasSubstr("x.h:2")));
}

TEST(HouseRules, GlobalsPerThreadAndRawNewAreFound) {
  EXPECT_THAT(code_violations(file("core/x.cpp", "thread_local int a;\n")), ElementsAre(HasSubstr("thread_local")));
  EXPECT_THAT(code_violations(file("core/x.cpp", "auto* a = new int;\ndelete a;\nF(const F&) = delete;\n")),
              ElementsAre(HasSubstr("x.cpp:1"), HasSubstr("x.cpp:2")));
}

TEST(HouseRules, QuestionsAboutPathsThatThrowAreFound) {
  EXPECT_THAT(code_violations(file("data/x.cpp",
                                   "if (fs::exists(folder / name)) return;\n"
                                   "return std::filesystem::is_directory(path_of(a, b));\n")),
              ElementsAre(HasSubstr("x.cpp:1"), HasSubstr("x.cpp:2")));
  EXPECT_THAT(code_violations(file("data/x.cpp",
                                   "if (fs::exists(folder / name, error)) return;\n"
                                   "if (path_exists(folder / name)) return;\n")),
              IsEmpty());
}

TEST(HouseRules, HashTablesWithoutAKeyAreFound) {
  EXPECT_THAT(code_violations(file("data/x.cpp",
                                   "std::unordered_map<std::string, int> a;\n"
                                   "std::unordered_set<std::int64_t> b;\n"
                                   "std::unordered_map<std::string, int, KeyedHash> c;\n"
                                   "std::unordered_map<const Param*, int> d;\n")),
              ElementsAre(HasSubstr("x.cpp:1"), HasSubstr("x.cpp:2")));
}

TEST(HouseRules, LoopsOverAPartOfATemporaryAreFound) {
  EXPECT_THAT(code_violations(file("data/x.cpp", "for (const Json& row : read_json(path)[\"rows\"]) {\n")),
              ElementsAre(HasSubstr("x.cpp:1")));
  EXPECT_THAT(code_violations(file("data/x.cpp", "for (const Json& row : read_json(f(1)).at(\"rows\")) {\n")),
              ElementsAre(HasSubstr("x.cpp:1")));
  EXPECT_THAT(code_violations(file("data/x.cpp", "for (const Row& row : read_rows(path)) {\n")), IsEmpty());
}

TEST(HouseRules, WordsOfUnfinishedWorkAndOfOneMachineAreFound) {
  const auto of = [](const std::string& text) { return violations(text_rules(), file("docs/x.md", text), text); };
  EXPECT_THAT(of("a\n" + halves("// TO", "DO later") + "\n"), ElementsAre(HasSubstr("x.md:2")));
  EXPECT_THAT(of(halves("see /wo", "rk/me/file")), ElementsAre(HasSubstr("machine")));
  EXPECT_THAT(of(halves("https://py", "pi.org/simple")), ElementsAre(HasSubstr("host name")));
  EXPECT_THAT(of("a line with a blank \n"), ElementsAre(HasSubstr("blanks")));
  EXPECT_THAT(of(halves("two matrix pro", "ducts and a ") + halves("quanti", "sed weight\n")),
              ElementsAre(HasSubstr("glossary")));
}

TEST(HouseRules, CommentsAndMessagesThatAreNoEnglishAreFound) {
  const auto of = [](const std::string& text) { return violations(text_rules(), file("data/x.h", text), text); };
  for (const std::string& text :
       {halves("int a;  // O", "f the device"), halves("/// O", "f the device."), halves("  int a;  ///< O", "f it"),
        halves("its SHA-256 is anot", "her one"), halves("fail(\"the", "re: a file\")"),
        halves("text += \"\\nthe", "re: {}\""), halves("Ctrl-C again lea", "ves"),
        halves("what is n", "o file is left out"), halves("the line goes on beh", "ind it")})
    EXPECT_EQ(of(text).size(), 1u) << text;
  EXPECT_THAT(of("/// Bytes of device memory. Of two equal ones, the first.\nf(\"is it there: {}\");\n"), IsEmpty());
}

TEST(WithoutComments, BlanksCommentsAndLiteralsAndKeepsLines) {
  EXPECT_EQ(without_comments("a // b\nc /* d\ne */ f"), "a     \nc     \n     f");
  EXPECT_EQ(without_comments("f(\"a\\\"b\", 'c', 1'000);"), "f(\"    \", ' ', 1'000);");
  EXPECT_EQ(without_comments("R\"x(a)\" // )x\" b"), "R\"x(       )x\" b");
  EXPECT_EQ(without_comments("g(\"// no\") // yes", Keep::literals), "g(\"// no\")       ");
}

}  // namespace qtrain::style
