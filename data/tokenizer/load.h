#pragma once
#include <filesystem>
#include <memory>
#include <vector>

#include "core/json.h"
#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/tokenizer.h"

namespace qtrain {

/// What the JSON files beside the vocabulary say.
struct TokenizerSettings {
  std::filesystem::path folder;
  Json config;                               ///< tokenizer_config.json, or {}
  std::map<std::string, std::string> named;  ///< special tokens by name
  std::vector<AddedToken> added;             ///< that tokenizer_config.json names
};
TokenizerSettings read_tokenizer_settings(const std::filesystem::path& folder);

/// The ids of the named special tokens.
SpecialTokens resolve_special(const TokenizerSettings& settings, const Tokenizer& tokenizer);

std::unique_ptr<Tokenizer> load_sentencepiece(const TokenizerSettings& settings);

}  // namespace qtrain
