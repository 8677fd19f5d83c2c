#include "tests/style/source_tree.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <stdexcept>

namespace qtrain::style {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 4> kCode{".h", ".cpp", ".cu", ".cuh"};
constexpr std::array<std::string_view, 12> kText{".md",   ".txt",   ".cmake", ".sh",  ".py",  ".json",
                                                 ".docs", ".jinja", ".svg",   ".yml", ".tsv", ""};

bool is_one_of(std::span<const std::string_view> list, const fs::path& path) {
  return std::find(list.begin(), list.end(), path.extension().string()) != list.end();
}

// Folders that do not belong to the sources: version control, builds, and output of examples and caches.
bool is_foreign(const fs::path& folder) {
  const std::string name = folder.filename().string();
  const bool of_example = folder.parent_path().parent_path().filename() == "examples";
  return name == ".git" || name == "build" || name == ".cache" || name == "__pycache__" ||
         (of_example && (name == "data" || name == "model" || name == "output"));
}

std::string read(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Removes unwanted parts of C++ text in one pass, replacing them by blanks.
class Stripper {
 public:
  Stripper(std::string_view text, Keep keep) : text_(text), keep_(keep) {}

  std::string run() {
    while (at_ < text_.size()) {
      if (starts("//")) {
        blank_until("\n", 0);
      } else if (starts("/*")) {
        blank_until("*/", 2);
      } else if (starts("R\"")) {
        raw_literal();
      } else if (text_[at_] == '"' || (text_[at_] == '\'' && !is_digit_separator())) {
        literal(text_[at_]);
      } else {
        out_ += text_[at_++];
      }
    }
    return std::move(out_);
  }

 private:
  bool starts(std::string_view what) const { return text_.substr(at_, what.size()) == what; }
  bool is_digit_separator() const { return at_ > 0 && std::isalnum(static_cast<unsigned char>(text_[at_ - 1])); }

  void blank(std::size_t end) {
    for (; at_ < end; ++at_) out_ += text_[at_] == '\n' ? '\n' : ' ';
  }
  void copy(std::size_t end) {
    out_ += text_.substr(at_, end - at_);
    at_ = end;
  }
  void blank_until(std::string_view end, std::size_t beyond) {
    const std::size_t found = text_.find(end, at_ + 2);
    blank(found == text_.npos ? text_.size() : found + beyond);
  }
  void contents(std::size_t end) { keep_ == Keep::literals ? copy(end) : blank(end); }

  void literal(char quote) {
    copy(at_ + 1);
    std::size_t end = at_;
    while (end < text_.size() && text_[end] != quote && text_[end] != '\n') end += text_[end] == '\\' ? 2 : 1;
    contents(std::min(end, text_.size()));
    if (at_ < text_.size()) copy(at_ + 1);
  }
  void raw_literal() {
    const std::size_t open = text_.find('(', at_);
    if (open == text_.npos) return copy(text_.size());
    const std::string end = ")" + std::string(text_.substr(at_ + 2, open - at_ - 2)) + "\"";
    const std::size_t close = text_.find(end, open);
    copy(open + 1);
    contents(close == text_.npos ? text_.size() : close);
    copy(std::min(at_ + end.size(), text_.size()));
  }

  std::string_view text_;
  Keep keep_;
  std::size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string SourceFile::folder() const {
  return path.has_parent_path() ? path.begin()->string() : std::string();
}

bool SourceFile::is_code() const {
  return is_one_of(kCode, path);
}

std::vector<SourceFile> source_tree(const fs::path& root) {
  std::vector<SourceFile> files;
  for (auto it = fs::recursive_directory_iterator(root); it != fs::recursive_directory_iterator(); ++it) {
    const fs::path path = it->path().lexically_relative(root);
    if (it->is_directory()) {
      if (is_foreign(root.filename() / path)) it.disable_recursion_pending();
    } else if (it->is_regular_file() && (is_one_of(kCode, path) || is_one_of(kText, path))) {
      files.push_back({.path = path, .text = read(it->path())});
    }
  }
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  return files;
}

std::string without_comments(std::string_view text, Keep keep) {
  return Stripper(text, keep).run();
}

std::vector<std::string> matching_lines(std::string_view text, const Search& search) {
  int error = 0;
  std::size_t at = 0;
  const std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> pattern(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(search.pattern.data()), search.pattern.size(), 0, &error, &at,
                    nullptr),
      pcre2_code_free);
  if (!pattern) throw std::invalid_argument("no pattern: " + std::string(search.pattern));
  pcre2_jit_compile(pattern.get(), PCRE2_JIT_COMPLETE);  // without it, slower
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
      pcre2_match_data_create_from_pattern(pattern.get(), nullptr), pcre2_match_data_free);
  std::vector<std::string> found;
  for (std::size_t begin = 0, line = 1; begin < text.size(); ++line) {
    const std::string_view one = text.substr(begin, std::min(text.find('\n', begin), text.size()) - begin);
    if (pcre2_match(pattern.get(), reinterpret_cast<PCRE2_SPTR>(one.data()), one.size(), 0, 0, match.get(), nullptr) >
        0)
      found.push_back(std::string(search.place) + ":" + std::to_string(line) + ": " + std::string(one));
    begin += one.size() + 1;
  }
  return found;
}

}  // namespace qtrain::style
