#pragma once
#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "core/os/file.h"

namespace qtrain::test {

/// A fenced block of a Markdown page.
struct FencedBlock {
  std::string language, text;
  int line = 0;  ///< of its first line
};

inline std::vector<FencedBlock> fenced_blocks(std::string_view page) {
  std::vector<FencedBlock> blocks;
  std::istringstream lines{std::string(page)};
  bool inside = false;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.starts_with("```")) {
      inside = !inside;
      if (inside) blocks.push_back({.language = line.substr(3), .line = number + 1});
    } else if (inside) {
      blocks.back().text += line + "\n";
    }
  }
  return blocks;
}

/// The pages below a folder, sorted.
inline std::vector<std::filesystem::path> pages_below(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> pages;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.path().extension() == ".md") pages.push_back(entry.path());
  std::sort(pages.begin(), pages.end());
  return pages;
}

}  // namespace qtrain::test
