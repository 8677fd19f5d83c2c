#include <fmt/format.h>

#include <algorithm>

#include "app/commands/commands.h"
#include "app/commands/read_files.h"
#include "app/commands/result_place.h"
#include "core/os/file.h"
#include "core/progress.h"
#include "core/utf8.h"
#include "report/report_page.h"
#include "text/template/python/characters.h"

namespace qtrain {
namespace {

constexpr std::size_t kMaxCellWidth = 34;  // terminal columns

using Table = std::vector<std::vector<std::string>>;

// Terminal columns as fmt counts them for padding: wide characters take two.
std::size_t columns_of(std::string_view text) {
  return 2 * text.size() - fmt::formatted_size("{:<{}}", text, text.size());
}

// Cuts a wider text at its beginning, with "..." in place of what is missing.
std::string end_of(const std::string& text, std::size_t columns) {
  constexpr std::size_t kMaxBytes = 4;  // of a character, which takes at least one column
  if (text.size() <= kMaxBytes * columns && columns_of(text) <= columns) return text;
  constexpr std::string_view kMark = "...";
  std::size_t begin = text.size() - std::min(text.size(), kMaxBytes * columns);
  while (begin < text.size() && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) ++begin;
  while (columns_of(std::string_view(text).substr(begin)) > columns - kMark.size()) next_code_point(text, begin);
  return std::string(kMark) + text.substr(begin);
}

std::string cell(const Json& value) {
  std::string text = value.is_null()           ? "-"
                     : value.is_number_float() ? fmt::format("{:.5g}", value.get<double>())
                     : value.is_string()       ? value.get<std::string>()
                                               : dump_json(value);
  return end_of(text, kMaxCellWidth);
}

// Aligns the table: each column is as wide as its widest cell.
std::string lines_of(const Table& table) {
  std::vector<std::size_t> widths(table.front().size());
  for (const auto& row : table)
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], columns_of(row[c]));
  std::string text;
  for (const auto& row : table) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) line += fmt::format("{:<{}}", row[c], widths[c] + 2);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

// One column per run, as rows with long names and many figures would not fit on a terminal.
std::string figures_table(const Json& runs) {
  constexpr std::array<std::pair<const char*, const char*>, 10> kRows{{{"", "name"},
                                                                       {"state", "state"},
                                                                       {"step", "step"},
                                                                       {"training loss", "loss"},
                                                                       {"evaluation loss", "eval_loss"},
                                                                       {"best eval loss", "best_eval_loss"},
                                                                       {"tokens", "tokens"},
                                                                       {"tokens/s", "tokens_per_second"},
                                                                       {"time", "seconds"},
                                                                       {"peak MiB", "peak_memory_mb"}}};
  Table table;
  for (const auto& [title, key] : kRows) {
    std::vector<std::string> row{title};
    for (const Json& run : runs) {
      const Json& value = run.at(key);
      const bool time = std::string_view(key) == "seconds" && value.is_number();
      row.push_back(time ? format_duration(value.get<double>()) : cell(value));
    }
    table.push_back(std::move(row));
  }
  return lines_of(table);
}

std::string differences_table(const Json& differing) {
  if (differing.empty()) return "no config keys differ\n";
  Table table;
  for (const auto& [key, values] : differing.items()) {
    std::vector<std::string> row{key};
    for (const Json& value : values) row.push_back(cell(value));
    table.push_back(std::move(row));
  }
  return "config keys that differ:\n" + lines_of(table);
}

}  // namespace

int run_compare(const Arguments& args) {
  std::vector<RunRecord> runs;
  std::vector<std::filesystem::path> inputs;
  for (const std::string& folder : args.operands()) runs.push_back(read_run(folder));
  for (const std::string& folder : args.operands())
    for (const auto& file : files_of_run(folder)) inputs.push_back(file);
  for (const RunRecord& run : runs)
    for (const std::string& what : run.missing) args.log().warn("{}: {}", one_line(run.folder.string()), what);
  const std::filesystem::path page = args.text("output").value_or("compare.html");
  write_result(ResultFile(args, page, inputs).place_now(), report_page(runs));
  Json json{{"runs", Json::array()}, {"differences", differences(runs)}, {"output", page.string()}};
  const std::vector<std::string> names = names_of(runs);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    Json figures{{"name", names[i]}};
    figures.update(figures_of(runs[i]));
    json["runs"].push_back(std::move(figures));
  }
  args.give({.text = fmt::format("{}\n{}\nwrote {}\n", figures_table(json["runs"]),
                                 differences_table(json["differences"]), page.string()),
             .json = std::move(json)});
  return 0;
}

}  // namespace qtrain
