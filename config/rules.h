#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "config/sections.h"

namespace qtrain {

/// A rule of rules.yaml that applies to a config.
struct Rule {
  std::string key, text, remedy;
};

/// Those of a part of rules.yaml, in its order.
std::vector<Rule> rules_on(const Config& config, std::string_view part);
/// Whether values are as the `when` of a rule asks.
bool applies(const Json& when, const Json& values);

}  // namespace qtrain
