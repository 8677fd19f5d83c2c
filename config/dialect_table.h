#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/formats/json.h"

/// What the keys of other tools mean is data: config/dialects/NAME.yaml, one table for each tool, compiled in.
///
///   also: {key: [names]}                      other names of a key, with the same values
///   translated:
///     name: key                               the value under another key
///     name: {about, to, map, convert, ...}    a KeyRow
///   ignored: {reason: {name: values}}         said once, as a note; warned: likewise, as a warning
///   unsupported: {reason: {name: values}}     an error
///   described: {reason: {names}}              listed with those that are ignored, and not said; "part.name" is that of
///                                             a member of an object
///   members: {part: [names]}                  of launchers: part.name is ignored like others
///   then: [{when, set, anyway, note}]         what follows from values, once all are known, in this order; `when` as
///                                             for rules.yaml. Keys that were given stay, unless `anyway`; "=..." is
///                                             the value of an expression; `note` is said of a key that was given
///
/// `values` mean what the program does anyway (as null does), so nothing is said of them: one, a list of them, `bool`
/// for true and false, or none. A name may end in *.
namespace qtrain {

enum class KeyStatus : std::uint8_t { translated, ignored, warned, unsupported, described };

/// A key of another tool.
struct KeyRow {
  std::string name;  ///< or the beginning of several, with a * behind it
  KeyStatus status = KeyStatus::translated;

  std::string about = {};                                  ///< for the reference page
  std::string target = {};                                 ///< a key of ours, or with a ~ one that waits for others
  std::vector<std::pair<Json, Json>> map = {};             ///< values: another value, {key: value}, or null for nothing
  std::vector<std::pair<Json, std::string>> refused = {};  ///< values that cannot be translated, and why
  std::string convert = {};                                ///< the conversion of other values, by its name
  std::string note = {};                                   ///< what is said of a value in `map`
  std::string otherwise = {};                              ///< of another value, which sets nothing
  std::string remedy = {};                                 ///< of a value that is refused; `otherwise` then refuses
  std::vector<std::pair<Json, std::string>> notes = {};    ///< what is said of single values in `map`

  std::vector<Json> neutral = {};  ///< values of which nothing is said where the key is ignored or unsupported
  std::string reason = {};

  bool is_translated() const { return status == KeyStatus::translated; }
  bool is_neutral(const Json& value) const;
  /// What `map` has for a value, or null.
  const Json* meaning(const Json& value) const;
};

struct DialectTable {
  std::string name;
  Json data;  ///< the whole table: what only one dialect has is read where it is used
  std::vector<KeyRow> rows = {};

  /// Names of rows that stand for one key.
  std::vector<std::string_view> names() const;
  /// The row of that name, or the one whose beginning it has, or null.
  const KeyRow* find(std::string_view name) const;
  std::string_view text(std::string_view member) const;
  std::vector<std::string_view> list(std::string_view member) const;
  const Json& object(std::string_view member) const;
  /// Whether a list, or an object, has the name.
  bool lists(std::string_view member, std::string_view name) const;
};
/// A table by its name; it has to be there.
const DialectTable& dialect_table(std::string_view name);
/// The one that holds in every dialect.
const DialectTable& common_table();

/// The tables of the kinds of config files, the canonical one first.
const std::vector<const DialectTable*>& dialects();
/// Finds the dialect of a document, by its key "dialect" or by the keys it has. Throws ErrorKind::usage when the keys
/// of two dialects are mixed or the name is not one.
const DialectTable& detect_dialect(const Json& document, std::string_view name);

/// A text of a table, a template as those of chats (Jinja), with these values.
std::string filled(std::string_view text, const Json& values);

}  // namespace qtrain
