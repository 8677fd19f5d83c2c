#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "config/dialect_table.h"
#include "config/setting.h"

namespace qtrain {

/// A value somewhere in a config file: the key to read it under, and its path in the file.
struct RawSetting {
  std::string key, path;
  Json value;
  std::string description = {};  ///< why nothing is set by it, of what only describes; empty: it is a setting
};

/// One kind of config file: a table, and what no table says.
struct Dialect {
  const DialectTable& table;
  /// Makes settings of canonical keys of those that wait for others. May be null.
  void (*settle)(Draft&) = nullptr;
  /// Settings that depend on others, once all values are known. May be null.
  void (*complete)(ResolvedConfig&) = nullptr;

  const std::string& name() const { return table.name; }
};
std::span<const Dialect> dialects();

/// Finds the dialect of a document, by its key "dialect" or by the keys it has. Throws ErrorKind::usage when the keys
/// of two dialects are mixed or the name is not one.
const Dialect& detect_dialect(const Json& document, std::string_view name);

/// All settings of a document under flat keys: the nesting of manifests and of *_config objects is undone.
/// `problem(path, text)` is told of parts that cannot be honored.
std::vector<RawSetting> flatten(const Dialect& dialect, const Json& document,
                                const std::function<void(const std::string& path, std::string text)>& problem);

// The rules of one tool that are not a table, in dialects/.
void settle_axolotl(Draft& draft);
void settle_llamafactory(Draft& draft);
void complete_axolotl(ResolvedConfig& config);
void complete_llamafactory(ResolvedConfig& config);
void complete_expert(ResolvedConfig& config);
void complete_modelforge(ResolvedConfig& config);

/// Whether there are evaluation rows.
bool evaluates(const ResolvedConfig& config);
/// For dialects that learn answers only: a response_template tells them apart; and where the model's folder has no chat
/// template, rows have no roles, and completion_only_loss does.
void tell_answers_apart(ResolvedConfig& config);

}  // namespace qtrain
