#pragma once
#include <string>
#include <string_view>

#include "core/formats/json.h"

/// Redaction of secrets: values of keys that are named like passwords and tokens, and credentials in URLs. Both appear
/// as kRedacted in configs, messages, reports and scripts.
namespace qtrain {

inline constexpr std::string_view kRedacted = "<redacted>";

/// Whether a key is called like a secret: "hub_token", "WANDB_API_KEY", "db.password", "extra_headers". Those that are
/// about tokens of a vocabulary are not ("pad_token", "max_tokens").
bool is_secret_name(std::string_view name);

/// A value that `name` is given, and everything in it, without what is secret: also in the texts and objects of an
/// environment, "HF_TOKEN=..." and {"name": "HF_TOKEN", "value": ...}. Values that say no more than yes, no or none
/// stay.
Json redacted(std::string_view name, const Json& value);

/// A text with kRedacted for the user and password of its URLs, and for the values of their parameters that are called
/// like secrets.
std::string without_credentials(std::string_view text);

}  // namespace qtrain
