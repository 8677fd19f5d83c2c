#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace qtrain::style {

/// A text file of the repository.
struct SourceFile {
  std::filesystem::path path;  ///< from the root of the repository
  std::string text;

  /// The first folder of the path, "" for a file of the root.
  std::string folder() const;
  bool is_code() const;  ///< .h, .cpp, .cu, .cuh
};

/// Every text file that belongs to the repository: no build folder, nothing that an example has written.
std::vector<SourceFile> source_tree(const std::filesystem::path& root);

/// C++ text with comments and the contents of string and character literals blanked; lines keep their numbers.
/// `literals` keeps the contents of strings (an #include's path is one).
enum class Keep { code, literals };
std::string without_comments(std::string_view text, Keep keep = Keep::code);

/// "file:line: text" for every line of `text` in which the regular expression is found.
struct Search {
  std::string_view pattern;
  std::string_view place;
};
std::vector<std::string> matching_lines(std::string_view text, const Search& search);

}  // namespace qtrain::style
