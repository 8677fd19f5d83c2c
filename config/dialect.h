#pragma once
#include <string_view>
#include <vector>

#include "config/dialect_table.h"

namespace qtrain {

/// The tables of the kinds of config files, the canonical one first.
const std::vector<const DialectTable*>& dialects();

/// Finds the dialect of a document, by its key "dialect" or by the keys it has. Throws ErrorKind::usage when the keys
/// of two dialects are mixed or the name is not one.
const DialectTable& detect_dialect(const Json& document, std::string_view name);

}  // namespace qtrain
