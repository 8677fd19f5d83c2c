#pragma once
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "config/config.h"
#include "tests/errors.h"

namespace qtrain::test {

/// What a YAML file with this text comes to.
inline ResolvedConfig recipe(std::string_view text, const Overrides& overrides = {}) {
  return parse_config(text, "r.yaml", overrides);
}

/// What is said against it.
inline std::string refusal_of_recipe(std::string_view text) {
  return error_of(ErrorKind::usage, [&] { recipe(text); });
}

}  // namespace qtrain::test
