#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace qtrain {

/// Another name of a key, with the same values.
struct Alias {
  std::string_view name, key;
};
std::span<const Alias> aliases();

/// A key of transformers, TRL, PEFT, bitsandbytes or a dialect that has no member here.
struct InertKey {
  std::string_view name;     ///< or the beginning of several, with a * behind it
  bool refused = false;      ///< a value that is not in `neutral` is an error; otherwise it is only remarked on
  std::string_view neutral;  ///< JSON list of values that mean what the program does anyway
  std::string_view why;      ///< what is said about another value
  bool warns = false;        ///< what is remarked on is a warning
};
/// Why a tracker's keys have no effect.
inline constexpr std::string_view kNotSent =
    "nothing is sent to a tracker; losses and metrics go to output_dir, into metrics.jsonl and runs/ (TensorBoard)";
std::span<const InertKey> inert_keys();
bool is_neutral(const InertKey& key, const Json& value);

/// What a rewrite makes of a value: settings of canonical keys, or a problem.
struct Rewritten {
  std::vector<std::pair<std::string, Json>> settings;
  std::string problem = {};
  std::vector<std::string> remarks = {};
};
/// A key whose values have to be translated.
struct Rewrite {
  std::string_view name;
  std::string_view doc;  ///< for the reference page
  std::function<Rewritten(const Json&)> apply;
};
const std::vector<Rewrite>& rewrites();

/// The entry of that name in a list, or null.
const InertKey* find_inert_in(std::span<const InertKey> keys, std::string_view name);
const Rewrite* find_rewrite_in(std::span<const Rewrite> list, std::string_view name);
/// The entry of that name, or null.
const Alias* find_alias(std::string_view name);
const InertKey* find_inert(std::string_view name);
const Rewrite* find_rewrite(std::string_view name);
/// Whether config_fields lists the name.
bool is_field(std::string_view name);
/// Names of all fields, in order.
std::vector<std::string_view> field_names();

/// A field and the words that it takes: those of a choice, true and false; none where it takes anything else.
struct KeyWords {
  std::string_view key;
  std::vector<std::string_view> words;
};
std::vector<KeyWords> key_words();

/// The JSON text of a value for messages: short and valid UTF-8.
std::string show(const Json& value);
/// The most similar of `names`, or empty when none is similar (Damerau-Levenshtein distance of a third of the length).
std::string_view nearest(std::string_view word, std::span<const std::string_view> names);

}  // namespace qtrain
