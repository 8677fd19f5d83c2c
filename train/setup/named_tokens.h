#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "text/tokenizer/tokenizer.h"

namespace qtrain {

/// The value of `eos_token` for the token that ends the chat template's answers.
inline constexpr std::string_view kAutomaticEnd = "auto";

/// Special tokens by name ("eos_token", "pad_token") that the config sets in place of the tokenizer folder's.
using NamedTokens = std::map<std::string, std::string>;
/// The ones whose texts the config gives.
NamedTokens named_tokens(const ModelSection& model);

/// Throws ErrorKind::usage for one that is not a token of the vocabulary.
void require_tokens(const NamedTokens& named, const Tokenizer& tokenizer);

/// Writes them to the files of a folder as TRL does: their text to tokenizer_config.json (and to
/// special_tokens_map.json if it exists); for a model, their ids to config.json and generation_config.json, where an
/// end token is put before the existing ones.
void write_named_tokens(const NamedTokens& named, const Tokenizer& tokenizer, const std::filesystem::path& folder);

/// The token ids that end an answer according to generation_config.json, or else config.json, in the folder; none
/// without these files. Throws ErrorKind::input for an unreadable file.
std::vector<std::int32_t> model_end_tokens(const std::filesystem::path& folder);

}  // namespace qtrain
