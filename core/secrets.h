#pragma once
#include <string>
#include <string_view>

#include "core/formats/json.h"

/// Redaction of secrets: values of keys that are named like passwords and tokens, and credentials in URLs. Both appear
/// as kRedacted in configs, messages, reports and scripts.
namespace qtrain {

inline constexpr std::string_view kRedacted = "<redacted>";

/// Whether a key is named like a secret: "hub_token", "WANDB_API_KEY", "db.password", "extra_headers". Names of
/// vocabulary tokens and their counts are not ("pad_token", "max_tokens").
bool is_secret_name(std::string_view name);

/// The value of `name` with all secrets in it redacted, including those in environment entries, "HF_TOKEN=..." and
/// {"name": "HF_TOKEN", "value": ...}. Booleans, null and empty values are kept.
Json redacted(std::string_view name, const Json& value);

/// The text with kRedacted in place of users, passwords and the values of secret query parameters in URLs.
std::string without_credentials(std::string_view text);
/// The same for all texts in a value.
Json urls_without_credentials(const Json& value);

}  // namespace qtrain
