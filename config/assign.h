#pragma once
#include <string>
#include <string_view>

#include "config/config.h"

namespace qtrain {

/// What is wrong with a value (empty: nothing), and what to do about it.
struct Assigned {
  std::string error, remedy;
};
/// Stores a JSON value in the field of that name.
Assigned assign_field(Config& config, std::string_view key, const Json& value);

/// Whether null is a value of the field, and does not just mean "not given".
bool takes_null(std::string_view key);

}  // namespace qtrain
