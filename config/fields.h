#pragma once
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/sections.h"

namespace qtrain {

/// Range of numbers that a key accepts; the ends are included unless they are open.
struct Range {
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  bool low_open = false, high_open = false;

  bool contains(double value) const;
  /// "in [0, 1)", "at least 1", ...; empty if all numbers are accepted.
  std::string text() const;
};

/// What is wrong with a value (empty: nothing) and how to fix it.
struct Assigned {
  std::string error, remedy;
};

/// A key of a config: its row of fields.yaml and its member of Config.
struct Field {
  std::string name, section, doc;
  OnResume resume = OnResume::refused;
  bool secret = false;  ///< its value is never printed or saved
  Range range = {};
  std::string type = {};                ///< expected values: "an integer", "one of a, b"
  std::vector<std::string> words = {};  ///< accepted strings; empty: all
  bool is_switch = false;               ///< accepts true and false
  bool takes_null = false;              ///< null is a value, and does not just mean "not given"

  std::function<Json(const Config&)> read = {};
  /// Stores a value; returns what is wrong with it, or nothing.
  std::function<std::string(const Field&, Config&, const Json&)> store = {};
};

/// All keys, in the order of the reference page. Parsing, unknown-key hints, dumps and the reference use this list.
std::span<const Field> fields();
/// Returns null if there is no such key.
const Field* find_field(std::string_view name);

/// Stores a JSON value in the field of that name; null only if the field can be null.
Assigned assign_field(Config& config, std::string_view key, const Json& value);

/// Returns `refused` for an unknown key.
OnResume on_resume(std::string_view key);

/// {key: value} of all fields.
Json values_json(const Config& config);
/// {key: value} of the fields that determine how a row is tokenized.
Json rows_json(const DataSection& section);

}  // namespace qtrain
