#pragma once
#include <functional>
#include <string_view>

#include "core/formats/json.h"

namespace qtrain {

/// A list at the top level of a document whose values are handed over one by one instead of being held all at once; the
/// returned document has an empty list.
struct JsonItems {
  std::string_view list;
  std::function<void(Json)> take;
};
/// Like parse_json and read_json, with the values of a list handed to `items`.
Json parse_json_items(std::string_view text, std::string_view name, const JsonItems& items,
                      const JsonRules& rules = {});
Json read_json_items(const std::filesystem::path& file, const JsonItems& items, const JsonRules& rules = {});

}  // namespace qtrain
