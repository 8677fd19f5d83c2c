#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"

namespace qtrain {

/// A rule of rules.yaml that applies to a config.
struct Rule {
  std::string key, text, remedy;
};

/// Those of a part of rules.yaml, in its order.
std::vector<Rule> rules_on(const ResolvedConfig& config, std::string_view part);
/// Whether a config is as `when`, `given` and `not_given` of a rule ask; `values` are those of the config.
bool applies(const Json& rule, const ResolvedConfig& config, const Json& values);

/// Writes out paths with ~, and remarks on values that go together without effect: TF32 with 16-bit GEMMs, LoRA keys
/// without an adapter, ...
void complete_config(ResolvedConfig& config);

/// Combinations of values that mean nothing, one entry each.
std::vector<ErrorText> contradictions(const ResolvedConfig& config);

/// What the config asks for and this program cannot do yet, one entry per key, and a missing model_name_or_path.
std::vector<ErrorText> unsupported(const ResolvedConfig& config);
/// Throws ErrorKind::usage with all of `unsupported`, if any.
void require_supported(const ResolvedConfig& config);

}  // namespace qtrain
