#pragma once
#include <string>

#include "config/config.h"
#include "core/log.h"

/// What is said of a config that can be run, but does not mean all that it says.
namespace qtrain {

/// Records that a key has no effect, in config.inert and as a note with its place. Nothing where the key was not given.
void no_effect(ResolvedConfig& config, const std::string& key, const std::string& reason);
/// That note: "c.json:3: "tf32" has no effect: ...".
std::string no_effect_note(const ResolvedConfig& config, const std::string& key, const std::string& reason);
/// That entry: {"value", "origin", "reason"}.
Json no_effect_entry(const ResolvedConfig& config, const std::string& key, const std::string& reason);

/// Remarks on values that go together without effect: TF32 with 16-bit products, LoRA keys without an adapter, ...
void add_remarks(ResolvedConfig& config);

/// Says notes and warnings at the start of a command.
void tell_remarks(const ResolvedConfig& config, Log& log);

}  // namespace qtrain
