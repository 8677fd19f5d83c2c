#include "tests/emulator/ptx/count_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <regex>
#include <sstream>

#include "core/error.h"
#include "core/os/file.h"

namespace qtrain::testing {
namespace {

using emulation::ptx::CountedLaunch;
using emulation::ptx::Counts;
using emulation::ptx::Kind;
using emulation::ptx::kKinds;

constexpr double kTolerance = 0.03;
constexpr std::string_view kTableHead = "| case | kernel |";

struct Column {
  std::string name;
  std::function<std::uint64_t&(CountRow&)> value;
};
const std::vector<Column>& columns() {
  static const std::vector<Column> all = [] {
    std::vector<Column> list{{"launches", [](CountRow& r) -> std::uint64_t& { return r.launches; }}};
    for (std::size_t n = 0; n < kKinds; ++n)
      list.push_back({std::string(name_of(static_cast<Kind>(n))),
                      [n](CountRow& r) -> std::uint64_t& { return r.counts.instructions[n]; }});
    list.push_back({"global bytes", [](CountRow& r) -> std::uint64_t& { return r.counts.global_bytes; }});
    list.push_back({"sectors", [](CountRow& r) -> std::uint64_t& { return r.counts.sectors; }});
    list.push_back({"excess sectors", [](CountRow& r) -> std::uint64_t& { return r.counts.excess_sectors; }});
    list.push_back({"wavefronts", [](CountRow& r) -> std::uint64_t& { return r.counts.wavefronts; }});
    list.push_back({"conflicts", [](CountRow& r) -> std::uint64_t& { return r.counts.conflicts; }});
    return list;
  }();
  return all;
}
std::string column_name(std::string name) {
  std::ranges::replace(name, ' ', '_');
  return name;
}

/// The fields of a line; one in quotes may contain commas.
std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields{""};
  bool quoted = false;
  for (const char c : line) {
    if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      fields.emplace_back();
    else
      fields.back() += c;
  }
  return fields;
}

const CountRow* find(const CountTable& table, const CountRow& like) {
  const auto found = std::ranges::find_if(
      table.rows, [&](const CountRow& r) { return r.task == like.task && r.kernel == like.kernel; });
  return found == table.rows.end() ? nullptr : &*found;
}

}  // namespace

std::vector<CountRow> rows_of(const std::string& task, const std::vector<CountedLaunch>& launches) {
  std::vector<CountRow> rows;
  for (const CountedLaunch& launch : launches) {
    auto row = std::ranges::find(rows, launch.kernel, &CountRow::kernel);
    if (row == rows.end()) row = rows.insert(row, {.task = task, .kernel = launch.kernel});
    ++row->launches;
    row->counts += launch.counts;
  }
  return rows;
}

std::string csv_of(const CountTable& table) {
  std::string csv = "# " + table.compiler + "\ncase,kernel";
  for (const Column& c : columns()) csv += "," + column_name(c.name);
  for (CountRow row : table.rows) {
    csv += fmt::format("\n{},\"{}\"", row.task, row.kernel);
    for (const Column& c : columns()) csv += fmt::format(",{}", c.value(row));
  }
  return csv + "\n";
}

CountTable table_of(const std::string& csv) {
  std::istringstream lines(csv);
  std::string line;
  std::getline(lines, line);
  check(line.starts_with("# "), "a table of counts has no compiler");
  CountTable table{line.substr(2)};
  std::getline(lines, line);
  while (std::getline(lines, line)) {
    const std::vector<std::string> fields = fields_of(line);
    check(fields.size() == columns().size() + 2, "a table of counts has other columns");
    CountRow row{.task = fields[0], .kernel = fields[1]};
    for (std::size_t n = 0; n < columns().size(); ++n) columns()[n].value(row) = std::stoull(fields[n + 2]);
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::string with_table(const std::string& page, const CountTable& table) {
  const std::size_t end = page.find(kTableHead);
  check(end != page.npos, "the page has no table of counts");
  std::string text = page.substr(0, end) + std::string(kTableHead) +
                     " instructions | mma | bytes | sectors | excess | wavefronts | conflicts |\n"
                     "|---|---|---:|---:|---:|---:|---:|---:|---:|\n";
  std::string before;
  for (const CountRow& row : table.rows) {
    const Counts& c = row.counts;
    text += fmt::format("| {} | `{}` | {} | {} | {} | {} | {} | {} | {} |\n", row.task == before ? "" : row.task,
                        row.kernel, c.total(), c.of(Kind::mma), c.global_bytes, c.sectors, c.excess_sectors,
                        c.wavefronts, c.conflicts);
    before = row.task;
  }
  return text;
}

std::vector<std::string> growth(const CountTable& before, const CountTable& now) {
  std::vector<std::string> grown;
  for (CountRow row : now.rows) {
    const std::string name = row.task + ", " + row.kernel;
    const CountRow* known = find(before, row);
    if (!known) {
      grown.push_back(name + ": not in the baseline");
      continue;
    }
    CountRow old = *known;
    for (const Column& c : columns())
      if (static_cast<double>(c.value(row)) > (1 + kTolerance) * static_cast<double>(c.value(old)))
        grown.push_back(fmt::format("{}: {} from {} to {}", name, c.name, c.value(old), c.value(row)));
  }
  for (const CountRow& row : before.rows)
    if (!find(now, row)) grown.push_back(row.task + ", " + row.kernel + ": only in the baseline");
  return grown;
}

std::string compiler_of(const std::filesystem::path& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".ptx") continue;
    const std::string text = read_text(entry.path());
    std::smatch version, target;
    const bool known = std::regex_search(text, version, std::regex(R"(release [\d.]+, V([\d.]+))")) &&
                       std::regex_search(text, target, std::regex(R"(\.target (\w+))"));
    check(known, "PTX without the version of its compiler");
    return "nvcc " + version[1].str() + " for " + target[1].str();
  }
  return "";
}

}  // namespace qtrain::testing
