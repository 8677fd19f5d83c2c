#pragma once
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "config/config.h"

namespace qtrain::test {

/// What a YAML file with this text comes to.
inline ResolvedConfig recipe(std::string_view text, const Overrides& overrides = {}) {
  return parse_config(text, "r.yaml", overrides);
}

/// What is said against it.
inline std::string refusal_of_recipe(std::string_view text) {
  try {
    recipe(text);
  } catch (const Error& e) {
    EXPECT_EQ(e.exit_code(), 2);
    return e.what();
  }
  return "no error";
}

}  // namespace qtrain::test
