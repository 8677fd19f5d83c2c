#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/remarks.h"
#include "core/formats/json.h"

namespace qtrain {

/// The canonical name of a key; the key itself if it is not an alias.
std::string_view canonical_key(std::string_view name);
/// Names of all fields, in order.
std::vector<std::string_view> field_names();

/// Whether a value sets nothing: null, false, 0, "", "none", "auto", {} and [].
bool is_unset(const Json& value);
/// The JSON text of a value for messages: short, valid UTF-8, and without secrets (core/secrets.h).
std::string show(const Json& value);
/// The same for the value of a key, given by the name that the user wrote: "hub.token".
std::string show(std::string_view key, const Json& value);
/// Whether a key's value is a secret: by its row in fields.yaml, else by its name.
bool is_secret_key(std::string_view key);
/// All names of keys: canonical ones, aliases, and those of other tools.
std::vector<std::string_view> known_keys();
/// Whether the name is a config key or an alias of one.
bool is_config_key(std::string_view key);

/// The nearest known name to an unknown key; empty once there are many problems, since each lookup compares all names.
std::string hint(const Diagnostics& diagnostics, std::string_view word, std::span<const std::string_view> names);
/// The most similar of `names`, or empty when none is similar (Damerau-Levenshtein distance of a third of the length).
std::string_view nearest(std::string_view word, std::span<const std::string_view> names);

}  // namespace qtrain
