#pragma once
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "config/config.h"
#include "tests/errors.h"

namespace qtrain {

inline Config value_of(std::string_view text, const Overrides& overrides = {}) {
  return parse_config(text, "c.json", overrides).value;
}

/// The usage error that a config causes.
inline std::string complaint_about(std::string_view text, const Overrides& overrides = {}) {
  return test::error_if_any(ErrorKind::usage, [&] { parse_config(text, "c.json", overrides); });
}

}  // namespace qtrain
