#pragma once
#include "core/json.h"
#include "text/template/py_value.h"

namespace qtrain {

/// A JSON document as Python's json.loads gives it.
PyValue py_from_json(const Json& json);

}  // namespace qtrain
