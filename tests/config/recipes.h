#pragma once
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "config/config.h"
#include "tests/errors.h"

namespace qtrain::test {

/// The config that a YAML file with this text resolves to.
inline ResolvedConfig recipe(std::string_view text, const Overrides& overrides = {}) {
  return parse_config(text, "r.yaml", overrides);
}

/// The message with which this text is refused.
inline std::string refusal_of_recipe(std::string_view text) {
  return error_of(ErrorKind::usage, [&] { recipe(text); });
}

}  // namespace qtrain::test
