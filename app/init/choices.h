#pragma once
#include <functional>
#include <string>
#include <vector>

#include "config/config.h"
#include "core/formats/json.h"

namespace qtrain::init {

/// A value for a key of the config, and why.
struct Choice {
  std::string key;
  Json value;
  std::string reason;
  bool given = false;  ///< on the command line
  bool asked = false;  ///< the user may change it
  /// Why another value cannot be used; "" if it can.
  std::function<std::string(const Json&)> objection = {};
};

/// The choices made so far, in the order of the file. Values that the command line gives stay.
class Choices {
 public:
  /// `confirm` gets every choice, and returns the wanted value of one that the user may change.
  using Confirm = std::function<Json(const Choice&)>;
  Choices(const Overrides& given, Confirm confirm) : given_(given), confirm_(std::move(confirm)) {}

  /// Adds a choice that follows from what was found; the user is not asked.
  Json add(Choice choice);
  /// Adds a choice that the user may change.
  Json ask(Choice choice);
  /// Puts a choice in place of an earlier one for its key, or adds it; not if the command line gives the key.
  void replace(Choice choice);
  /// The same choices, of which no user hears.
  Choices unconfirmed() const;
  /// Whether the command line gives this canonical key.
  bool is_given(const std::string& key) const { return given_value(key) != nullptr; }
  /// Its value there, as JSON; discarded if the command line does not give the key.
  Json given(const std::string& key) const;

  const std::vector<Choice>& all() const { return all_; }
  /// {key: value} of all choices.
  Json document() const;
  /// Values of the command line that no choice has.
  Overrides unused() const;

 private:
  const std::string* given_value(const std::string& key) const;
  Json take(Choice choice);

  Overrides given_;
  Confirm confirm_;
  std::vector<Choice> all_;
};

/// A value as on the command line: JSON if it parses, else a string.
Json value_of_word(const std::string& word);

}  // namespace qtrain::init
