#include "data/token_columns.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "data/dataset.h"

namespace qtrain {
namespace {

[[noreturn]] void bad_column(std::string cause) {
  fail(ErrorKind::input, {.cause = std::move(cause)});
}

bool is_there(const Json& row, std::string_view key) {
  const auto it = row.find(key);
  return it != row.end() && !it->is_null();
}

std::vector<std::int32_t> ids_at(const Json& row, std::string_view key) {
  const Json& list = row.at(key);
  if (!list.is_array()) bad_column(fmt::format("'{}' is not a list of integers but {}", key, list.type_name()));
  std::vector<std::int32_t> ids;
  ids.reserve(list.size());
  for (const Json& value : list) {
    const bool integer = value.is_number_unsigned() || value.is_number_integer();
    if (!integer || value > std::numeric_limits<std::int32_t>::max() || value < kNoTarget)
      bad_column(fmt::format("'{}' contains {}, which is not a token id", key, dump_json(value).substr(0, 40)));
    ids.push_back(value.get<std::int32_t>());
  }
  return ids;
}

std::vector<std::int32_t> parallel_ids(const Json& row, std::string_view key, std::size_t size) {
  if (!is_there(row, key)) return {};
  std::vector<std::int32_t> values = ids_at(row, key);
  if (values.size() != size) bad_column(fmt::format("'{}' has {} values for {} input_ids", key, values.size(), size));
  return values;
}

std::vector<bool> mask_at(const Json& row, std::string_view key, std::size_t size) {
  const std::vector<std::int32_t> values = parallel_ids(row, key, size);
  return {values.begin(), values.end()};
}

}  // namespace

void read_token_columns(const Json& row, const ShapeRules&, Sample& sample) {
  sample.shape = RowShape::tokens;
  sample.input_ids = ids_at(row, "input_ids");
  const std::size_t size = sample.input_ids.size();
  sample.labels = parallel_ids(row, "labels", size);
  sample.position_ids = parallel_ids(row, "position_ids", size);
  sample.assistant_mask = mask_at(row, "assistant_masks", size);
  sample.completion_mask = mask_at(row, "completion_mask", size);
}

}  // namespace qtrain
