// Makes `text` rows of Markdown files: one row for each section. Usage: docs_dataset --output FILE.jsonl PATH ...
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/formats/json.h"
#include "core/log.h"
#include "core/os/file.h"
#include "examples/program.h"

namespace qtrain::pretrain {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kShortestSection = 80;  // in bytes: a heading alone is not a useful text

struct Options {
  fs::path output;
  std::vector<fs::path> inputs;
};

Options parse(const std::vector<std::string>& arguments) {
  Options options;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--output" && i + 1 < arguments.size()) {
      options.output = arguments[++i];
    } else {
      options.inputs.emplace_back(arguments[i]);
    }
  }
  if (options.output.empty() || options.inputs.empty())
    fail(ErrorKind::usage,
         {.cause = "no output or no input", .remedy = "Usage: docs_dataset --output FILE.jsonl PATH ..."});
  return options;
}

// Returns the files themselves, and every .md file below folders; sorted, so that the rows do not depend on the file
// system.
std::vector<fs::path> markdown_files(const std::vector<fs::path>& inputs) {
  std::vector<fs::path> files;
  for (const fs::path& input : inputs) {
    if (!fs::exists(input)) fail(ErrorKind::input, {.cause = "no such file or folder", .place = input.string()});
    if (!fs::is_directory(input)) {
      files.push_back(input);
      continue;
    }
    for (const auto& entry : fs::recursive_directory_iterator(input))
      if (entry.is_regular_file() && entry.path().extension() == ".md") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Splits a page at its headings; a `#` inside a fenced block is not a heading.
std::vector<std::string> sections(std::string_view text) {
  std::vector<std::string> out(1);
  bool fenced = false;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    const std::string_view line = text.substr(0, end);
    if (line.starts_with("```")) fenced = !fenced;
    if (!fenced && line.starts_with('#')) out.emplace_back();
    out.back() += line;
    text.remove_prefix(end);
  }
  std::erase_if(out, [](const std::string& section) { return section.size() < kShortestSection; });
  return out;
}

void write_rows(const Options& options, Log& log) {
  std::string rows;
  std::size_t count = 0, bytes = 0;
  for (const fs::path& file : markdown_files(options.inputs)) {
    for (const std::string& section : sections(read_text(file))) {
      rows += dump_json(Json{{"text", section}}) + "\n";
      bytes += section.size();
      ++count;
    }
  }
  if (count == 0) fail(ErrorKind::input, {.cause = "no section with text in the given files"});
  if (options.output.has_parent_path()) fs::create_directories(options.output.parent_path());
  write_file(options.output, rows);
  log.info("{} rows with {} bytes of text in {}", count, bytes, options.output.string());
}

}  // namespace
}  // namespace qtrain::pretrain

int main(int argc, char** argv) {
  return qtrain::run_program(argc, argv, [](const auto& arguments, qtrain::Log& log) {
    qtrain::pretrain::write_rows(qtrain::pretrain::parse(arguments), log);
  });
}
