#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/config.h"
#include "config/keys.h"
#include "config/setting.h"

namespace qtrain {

/// A value somewhere in a config file: the key to read it under, and its path in the file.
struct RawSetting {
  std::string key, path;
  Json value;
  std::string_view described = {};  ///< why nothing is set by it, of what only describes; empty: it is a setting
};

/// A default of a dialect that is not the canonical one.
struct DialectDefault {
  std::string_view key;
  std::string_view json;
};

/// One kind of config file.
struct Dialect {
  std::string_view name;
  std::string_view about;                 ///< for the start of a run and for the reference page
  std::vector<std::string_view> sure;     ///< keys that no other dialect has: one decides
  std::vector<std::string_view> usual;    ///< two decide where model_name_or_path is not given
  std::vector<std::string_view> ignored;  ///< top-level keys that are not about training
  std::vector<DialectDefault> defaults;
  std::vector<Rewrite> rewrites = {};  ///< keys that mean something else elsewhere, or nothing
  std::span<const InertKey> inert = {};
  /// Makes settings of canonical keys of those that wait for others. May be null.
  void (*settle)(Draft&) = nullptr;
  /// Settings that depend on others, once all values are known. May be null.
  void (*complete)(ResolvedConfig&) = nullptr;

  const Rewrite* own_rewrite(std::string_view key) const { return find_rewrite_in(rewrites, key); }
  const InertKey* own_inert(std::string_view key) const { return find_inert_in(inert, key); }
};
/// For dialects that learn answers only: a response_template tells them apart; and where the model's folder has no chat
/// template, rows have no roles, and completion_only_loss does.
void tell_answers_apart(ResolvedConfig& config);
/// Dialects that have files of their own.
Dialect llamafactory_dialect();
Dialect axolotl_dialect();
std::span<const Dialect> dialects();

/// Finds the dialect of a document, by its key "dialect" or by the keys it has. Throws ErrorKind::usage when the keys
/// of two dialects are mixed or the name is not one.
const Dialect& detect_dialect(const Json& document, std::string_view name);
const Dialect& dialect_named(std::string_view name);

/// All settings of a document under flat keys: the nesting of manifests and of *_config objects is undone.
/// `problem(path, text)` is told of parts that cannot be honored.
std::vector<RawSetting> flatten(const Dialect& dialect, const Json& document,
                                const std::function<void(const std::string& path, std::string text)>& problem);

/// Names of the objects whose members count as if they stood at the top.
std::span<const std::string_view> transparent_objects();

}  // namespace qtrain
