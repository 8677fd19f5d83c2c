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

/// `eos_token` where it is to be the token that ends the chat template's answers.
inline constexpr std::string_view kAutomaticEnd = "auto";

/// Special tokens by name ("eos_token", "pad_token") that a config sets in place of the tokenizer folder's.
using NamedTokens = std::map<std::string, std::string>;
/// Those that the config gives as texts.
NamedTokens named_tokens(const ModelSection& model);

/// A usage error for one that is not a token of the vocabulary.
void require_tokens(const NamedTokens& named, const Tokenizer& tokenizer);

/// Puts them into the files of a folder as TRL saves them: their texts into tokenizer_config.json (and
/// special_tokens_map.json, if it is there); of a model their ids into config.json and generation_config.json, where an
/// end token stands before the ones that there were.
void write_named_tokens(const NamedTokens& named, const Tokenizer& tokenizer, const std::filesystem::path& folder);

/// The ids at which answers of the model in a folder end, as its generation_config.json or else its config.json says;
/// none where there are no such files. Errors (ErrorKind::input): a file that cannot be read.
std::vector<std::int32_t> model_end_tokens(const std::filesystem::path& folder);

}  // namespace qtrain
