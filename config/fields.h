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

/// The numbers that a key takes: all, or those from `low` on; the ends belong to it unless `open`.
struct Range {
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  bool low_open = false, high_open = false;

  bool contains(double value) const;
  /// "in [0, 1)", "at least 1", ...; empty where it takes all numbers.
  std::string text() const;
};

/// What is wrong with a value (empty: nothing), and what to do about it.
struct Assigned {
  std::string error, remedy;
};

/// A key of a config: its row of fields.yaml and its member of Config.
struct Field {
  std::string name, section, doc;
  OnResume resume = OnResume::refused;
  bool secret = false;  ///< its value is written nowhere
  Range range = {};
  std::string type = {};                ///< what its values are: "an integer", "one of a, b"
  std::vector<std::string> words = {};  ///< if it takes only some
  bool is_switch = false;               ///< takes true and false
  bool takes_null = false;              ///< null is a value, and does not just mean "not given"

  std::function<Json(const Config&)> read = {};
  /// Stores a value; returns what is wrong with it, or nothing.
  std::function<std::string(const Field&, Config&, const Json&)> store = {};
};

/// All keys, in the order of the reference page: parsing, unknown keys, the resolved dump and the reference run over
/// them.
std::span<const Field> fields();
/// Null where no key has that name.
const Field* find_field(std::string_view name);

/// Stores a JSON value in the field of that name; null only where it is a value.
Assigned assign_field(Config& config, std::string_view key, const Json& value);

/// `refused` for what is no key.
OnResume on_resume(std::string_view key);

/// {key: value} of all fields.
Json values_json(const Config& config);
/// {key: value} of the fields that decide what is made of a row.
Json rows_json(const DataSection& section);

}  // namespace qtrain
