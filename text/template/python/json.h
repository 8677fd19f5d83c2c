#pragma once
#include <optional>
#include <string>

#include "core/formats/json.h"
#include "text/template/python/value.h"

namespace qtrain {

/// json.loads: converts a document to a value.
PyValue py_from_json(const Json& json);

struct DumpOptions {
  bool ensure_ascii = false;
  std::optional<std::string> indent = {};  ///< indentation per level
  std::string item_separator = ", ", key_separator = ": ";
  bool sort_keys = false;
};
/// json.dumps. Throws TypeErrors for values that JSON cannot represent.
std::string py_json_dumps(PyWork& work, const PyValue& value, const DumpOptions& options);

}  // namespace qtrain
