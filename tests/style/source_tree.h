#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace qtrain::style {

/// A text file of the repository.
struct SourceFile {
  std::filesystem::path path;  ///< relative to the root of the repository
  std::string text;

  /// The first folder of the path; "" for a file in the root.
  std::string folder() const;
  bool is_code() const;  ///< .h, .cpp, .cu, .cuh
};

/// Every text file that belongs to the repository, without build folders and the output of examples.
std::vector<SourceFile> source_tree(const std::filesystem::path& root);

/// C++ text in which comments and the contents of string and character literals are replaced by blanks; line numbers
/// stay the same. `literals` keeps the contents of strings (such as the path of an #include).
enum class Keep { code, literals };
std::string without_comments(std::string_view text, Keep keep = Keep::code);

/// "file:line: text" for every line of `text` that matches the regular expression.
struct Search {
  std::string_view pattern;
  std::string_view place;
};
std::vector<std::string> matching_lines(std::string_view text, const Search& search);

}  // namespace qtrain::style
