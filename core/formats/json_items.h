#pragma once
#include <functional>

#include "core/formats/json.h"

namespace qtrain {

/// A list at the top level of a document whose values are handed over one by one instead of being held all at once; the
/// document then has it empty.
struct JsonItems {
  std::string_view list;
  std::function<void(Json)> take;
};
/// As read_json.
Json read_json_items(const std::filesystem::path& file, const JsonItems& items, const JsonRules& rules = {});

}  // namespace qtrain
