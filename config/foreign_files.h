#pragma once
#include <string_view>

#include "core/json.h"

namespace qtrain {

/// An error (ErrorKind::usage) for a document that is another kind of file than a config: what it is, and what to do.
void require_config(const Json& document, std::string_view name);

}  // namespace qtrain
