#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "app/commands/commands.h"
#include "data/listing.h"

namespace qtrain {
namespace {

Json json_of(const ListedData& data) {
  return {{"path", data.path.string()},
          {"readable", data.problem.empty()},
          {"problem", data.problem.empty() ? Json() : Json(data.problem)},
          {"format", data.format},
          {"shape", data.shape.empty() ? Json() : Json(data.shape)},
          {"columns", data.columns},
          {"rows", data.rows},
          {"rows_estimated", data.estimated},
          {"bytes", data.bytes}};
}

std::string size_text(std::uint64_t bytes) {
  constexpr std::string_view kUnits[] = {"B", "KB", "MB", "GB", "TB"};
  auto size = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; size >= 1000 && unit + 1 < std::size(kUnits); ++unit) size /= 1000;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", size, kUnits[unit]);
}

std::string line_of(const ListedData& data, std::size_t width) {
  const std::string head = fmt::format("{:<{}}  {:<8}", data.path.string(), width, data.format);
  if (!data.problem.empty()) return fmt::format("{}cannot be read: {}", head, data.problem);
  return fmt::format("{}{:<20}{:>12} rows  {:>10}  {}", head, data.shape,
                     (data.estimated ? "~" : "") + std::to_string(data.rows), size_text(data.bytes),
                     fmt::join(data.columns, ", "));
}

}  // namespace

/// `qtrain datasets DIR`: lists the training data in a folder.
int run_datasets(const Arguments& args) {
  const std::vector<ListedData> all =
      list_data(args.operand(0), {.text_field = args.text("text_field").value_or("text")});
  CommandResult result{.text = "", .json = Json::array()};
  std::size_t width = 0;
  for (const ListedData& data : all) width = std::max(width, data.path.string().size());
  for (const ListedData& data : all) {
    result.text += line_of(data, width) + "\n";
    result.json.push_back(json_of(data));
  }
  args.give(result);
  if (all.empty()) args.log().info("no training data found in {}", args.operand(0));
  return 0;
}

}  // namespace qtrain
