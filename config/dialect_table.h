#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/formats/json.h"

/// What the keys of other tools mean is defined in tables: config/dialects/NAME.yaml, one per tool, compiled in.
///
///   also: {key: [names]}                      other names of a key, with the same values
///   translated:
///     name: key                               the value under another key
///     name: {about, to, map, convert, ...}    a KeyRow
///   ignored: {reason: {name: values}}         printed once, as a note; warned: as a warning
///   unsupported: {reason: {name: values}}     an error
///   described: {reason: {names}}              listed with the ignored keys but not printed; "part.name" is a member of
///                                             an object
///   members: {part: [names]}                  for launchers: part.name is ignored like other keys
///   then: [{when, set, anyway, note}]         values that follow from others, once all are known, in this order;
///   `when`
///                                             is as in rules.yaml. Keys that were given keep their values unless
///                                             `anyway` is set; "=..." is the value of an expression; `note` is printed
///                                             for a key that was given
///
/// `values` mean what the program does anyway (as null does), so they cause no remark: one, a list of them, `bool` for
/// true and false, or none. A name may end in *.
namespace qtrain {

enum class KeyStatus : std::uint8_t { translated, ignored, warned, unsupported, described };

/// A key of another tool.
struct KeyRow {
  std::string name;  ///< or the prefix of several, followed by *
  KeyStatus status = KeyStatus::translated;

  std::string about = {};                       ///< for the reference page
  std::string target = {};                      ///< the canonical key; with ~ one that depends on other keys
  std::vector<std::pair<Json, Json>> map = {};  ///< value -> another value, {key: value}, or null to set nothing
  std::vector<std::pair<Json, std::string>> refused = {};  ///< values that cannot be translated, and why
  std::string convert = {};                                ///< name of the conversion for values not in `map`
  std::string note = {};                                   ///< note printed for any value in `map`
  std::string otherwise = {};                              ///< note for any other value, which sets nothing
  std::string remedy = {};                                 ///< remedy for a refused value; makes `otherwise` an error
  std::vector<std::pair<Json, std::string>> notes = {};    ///< notes for particular values in `map`

  std::vector<Json> neutral = {};  ///< values accepted silently if the key is ignored or unsupported
  std::string reason = {};

  bool is_translated() const { return status == KeyStatus::translated; }
  bool is_neutral(const Json& value) const;
  /// Looks a value up in `map`; null if it is not there.
  const Json* meaning(const Json& value) const;
};

struct DialectTable {
  std::string name;
  Json data;  ///< the whole table; parts that only one dialect has are read where they are used
  std::vector<KeyRow> rows = {};

  /// Names of the rows without wildcards.
  std::vector<std::string_view> names() const;
  /// The row of that name, else the one whose prefix matches, else null.
  const KeyRow* find(std::string_view name) const;
  std::string_view text(std::string_view member) const;
  std::vector<std::string_view> list(std::string_view member) const;
  const Json& object(std::string_view member) const;
  /// Whether the list or object `member` contains the name.
  bool lists(std::string_view member, std::string_view name) const;
};
/// The table of that name, which must exist.
const DialectTable& dialect_table(std::string_view name);
/// The table that applies in every dialect.
const DialectTable& common_table();

/// The tables of all dialects, the canonical one first.
const std::vector<const DialectTable*>& dialects();
/// Finds the dialect of a document, by its key "dialect" or by the keys it has. Throws ErrorKind::usage when the keys
/// of two dialects are mixed or there is no such dialect.
const DialectTable& detect_dialect(const Json& document, std::string_view name);

/// Renders a text of a table, a Jinja template, with these values.
std::string filled(std::string_view text, const Json& values);

}  // namespace qtrain
