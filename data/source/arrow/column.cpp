#include "data/source/arrow/column.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/formats/json_object.h"
#include "core/half.h"
#include "text/tokenizer/unicode.h"

namespace qtrain {
namespace {

void require_value(bool fine, const char* why) {
  if (!fine) fail(ErrorKind::input, {.cause = std::string("damaged Arrow data: ") + why});
}

bool bit_at(std::string_view bits, std::int64_t i) {
  return (static_cast<unsigned char>(bits[static_cast<std::size_t>(i / 8)]) >> (i % 8)) & 1;
}

std::uint64_t place_of_value(std::int64_t i, int bits) {
  return static_cast<std::uint64_t>(i) * static_cast<std::uint64_t>(bits / 8);
}

std::int64_t signed_at(std::string_view values, std::int64_t i, int bits) {
  const std::uint64_t at = place_of_value(i, bits);
  switch (bits) {
    case 8: return number_at<std::int8_t>(values, at);
    case 16: return number_at<std::int16_t>(values, at);
    case 32: return number_at<std::int32_t>(values, at);
    default: return number_at<std::int64_t>(values, at);
  }
}

std::uint64_t unsigned_at(std::string_view values, std::int64_t i, int bits) {
  const std::uint64_t at = place_of_value(i, bits);
  switch (bits) {
    case 8: return number_at<std::uint8_t>(values, at);
    case 16: return number_at<std::uint16_t>(values, at);
    case 32: return number_at<std::uint32_t>(values, at);
    default: return number_at<std::uint64_t>(values, at);
  }
}

float half_of(std::uint16_t bits) {
  F16 half;
  half.bits = bits;
  return half;
}

double real_at(std::string_view values, std::int64_t i, int bits) {
  const std::uint64_t at = place_of_value(i, bits);
  switch (bits) {
    case 16: return half_of(number_at<std::uint16_t>(values, at));
    case 32: return number_at<float>(values, at);
    default: return number_at<double>(values, at);
  }
}

/// The range [begin, end) of value `i`, which is text or a list; never negative, and not decreasing.
std::pair<std::int64_t, std::int64_t> offsets_at(const ArrowColumn& column, std::int64_t i) {
  const int bits = column.field->bits;
  return {signed_at(column.offsets, i, bits), signed_at(column.offsets, i + 1, bits)};
}

std::pair<std::int64_t, std::int64_t> range_at(const ArrowColumn& column, std::int64_t i, std::uint64_t most) {
  const auto range = offsets_at(column, i);
  require_value(static_cast<std::uint64_t>(range.second) <= most, "an offset is out of range");
  return range;
}

Json text_value(const ArrowField& field, std::string_view text) {
  require_value(is_utf8(text), "text is not UTF-8");
  if (field.is_json) return parse_json(text, field.name);
  return std::string(text);
}

/// A view contains text of up to 12 bytes itself; for longer text it has the block and offset.
std::string_view viewed(const ArrowColumn& column, std::int64_t i) {
  const std::uint64_t at = static_cast<std::uint64_t>(i) * 16;
  const auto size = number_at<std::uint32_t>(column.values, at);
  if (size <= 12) return column.values.substr(at + 4, size);
  const auto block = number_at<std::uint32_t>(column.values, at + 8);
  const auto offset = number_at<std::uint32_t>(column.values, at + 12);
  require_value(block < column.blocks.size() && offset <= column.blocks[block].size() &&
                    size <= column.blocks[block].size() - offset,
                "a view is out of range");
  return column.blocks[block].substr(offset, size);
}

Json list_value(const ArrowColumn& items, std::pair<std::int64_t, std::int64_t> range) {
  Json out = Json::array();
  for (std::int64_t i = range.first; i < range.second; ++i) out.push_back(arrow_value(items, i));
  return out;
}

Json struct_value(const ArrowColumn& column, std::int64_t i) {
  JsonObject out;
  for (const ArrowColumn& child : column.children)
    if (child.field->kind != ArrowKind::unread) out.add(child.field->name, arrow_value(child, i));
  return out.take();
}

bool is_null(const ArrowColumn& column, std::int64_t i) {
  return !column.validity.empty() && !bit_at(column.validity, i);
}

std::int64_t index_at(const ArrowColumn& column, std::int64_t i) {
  const int bits = column.field->index_bits;
  return column.field->index_signed ? signed_at(column.values, i, bits)
                                    : static_cast<std::int64_t>(unsigned_at(column.values, i, bits));
}

Json dictionary_value(const ArrowColumn& column, std::int64_t i) {
  const std::int64_t index = index_at(column, i);
  require_value(index >= 0 && index < column.dictionary.length, "an index is out of range");
  const auto& [columns, ends, sizes] = *column.dictionary.parts;
  const auto part = static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), index) - ends.begin());
  return arrow_value(*columns[part], index - (part == 0 ? 0 : ends[part - 1]));
}

}  // namespace

void ArrowDictionary::Parts::add(std::shared_ptr<const ArrowColumn> column) {
  constexpr std::uint64_t kMaxCounted = std::numeric_limits<std::uint32_t>::max();
  sizes.reserve(sizes.size() + static_cast<std::size_t>(column->length));
  for (std::int64_t i = 0; i < column->length; ++i)
    sizes.push_back(static_cast<std::uint32_t>(std::min(value_size(*column, i), kMaxCounted)));
  ends.push_back((ends.empty() ? 0 : ends.back()) + column->length);
  columns.push_back(std::move(column));
}

std::uint64_t value_size(const ArrowColumn& column, std::int64_t i) {
  const ArrowField& field = *column.field;
  if (is_null(column, i)) return 1;
  if (field.dictionary) {
    const std::int64_t index = index_at(column, i);
    const bool inside = index >= 0 && index < column.dictionary.length;
    return inside ? column.dictionary.parts->sizes[static_cast<std::size_t>(index)] : 1;
  }
  std::uint64_t size = 1;
  const auto add_items = [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t last = std::min(end, column.children[0].length);
    for (std::int64_t item = begin; item < last; ++item) size += value_size(column.children[0], item);
  };
  switch (field.kind) {
    case ArrowKind::text: {
      const auto [begin, end] = offsets_at(column, i);
      return size + std::min(static_cast<std::uint64_t>(end - begin), std::uint64_t{column.values.size()});
    }
    case ArrowKind::text_view:
      return size + number_at<std::uint32_t>(column.values, static_cast<std::uint64_t>(i) * 16);
    case ArrowKind::list: {
      const auto [begin, end] = offsets_at(column, i);
      add_items(begin, end);
      return size;
    }
    case ArrowKind::fixed_list: add_items(i * field.list_size, (i + 1) * field.list_size); return size;
    case ArrowKind::structure:
      for (const ArrowColumn& child : column.children) size += value_size(child, i);
      return size;
    default: return size;
  }
}

std::uint64_t repeated_bytes(const ArrowColumn& column) {
  std::uint64_t bytes = 0;
  if (column.field->dictionary || column.field->kind == ArrowKind::text_view)
    for (std::int64_t i = 0; i < column.length; ++i) bytes += value_size(column, i);
  for (const ArrowColumn& child : column.children) bytes += repeated_bytes(child);
  return bytes;
}

Json arrow_value(const ArrowColumn& column, std::int64_t i) {
  const ArrowField& field = *column.field;
  if (is_null(column, i)) return nullptr;
  if (field.dictionary) return dictionary_value(column, i);
  switch (field.kind) {
    case ArrowKind::boolean: return bit_at(column.values, i);
    case ArrowKind::integer:
      if (field.is_signed) return signed_at(column.values, i, field.bits);
      return unsigned_at(column.values, i, field.bits);
    case ArrowKind::real: return real_at(column.values, i, field.bits);
    case ArrowKind::text: {
      const auto [begin, end] = range_at(column, i, column.values.size());
      return text_value(field,
                        column.values.substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
    }
    case ArrowKind::text_view: return text_value(field, viewed(column, i));
    case ArrowKind::list: {
      const ArrowColumn& items = column.children[0];
      return list_value(items, range_at(column, i, static_cast<std::uint64_t>(items.length)));
    }
    case ArrowKind::fixed_list: return list_value(column.children[0], {i * field.list_size, (i + 1) * field.list_size});
    case ArrowKind::structure: return struct_value(column, i);
    default: return nullptr;
  }
}

}  // namespace qtrain
