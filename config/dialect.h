#pragma once
#include <span>
#include <string>
#include <string_view>

#include "config/dialect_table.h"
#include "config/setting.h"

namespace qtrain {

/// One kind of config file: a table, and what no table says.
struct Dialect {
  const DialectTable& table;
  /// Makes settings of canonical keys of those that wait for others. May be null.
  void (*settle)(Draft&) = nullptr;

  const std::string& name() const { return table.name; }
};
std::span<const Dialect> dialects();

/// Finds the dialect of a document, by its key "dialect" or by the keys it has. Throws ErrorKind::usage when the keys
/// of two dialects are mixed or the name is not one.
const Dialect& detect_dialect(const Json& document, std::string_view name);

}  // namespace qtrain
