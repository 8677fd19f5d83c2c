#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/formats/json_view.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/tokenizer.h"

namespace qtrain {

/// The tokenizer of a model folder: tokenizer.json where it is, else tokenizer.model (sentencepiece).
/// `named`: special tokens in place of those that the folder names.
/// Errors (ErrorKind::input): neither file, or a component that is not supported.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& folder,
                                          const std::map<std::string, std::string>& named = {});

/// How a tokenizer.json is read: of bounded size, and of keys given twice the last counts.
inline constexpr JsonRules kTokenizerRules{.duplicate_keys = true, .max_bytes = std::uint64_t{256} << 20};

/// A tokenizer.json without its added tokens, which go to `added`: there may be a million of them.
Json read_tokenizer_file(const std::filesystem::path& file, std::vector<AddedToken>& added);

/// What the JSON files beside the vocabulary say.
struct TokenizerSettings {
  std::filesystem::path folder;
  Json config;                               ///< tokenizer_config.json, or {}
  std::map<std::string, std::string> named;  ///< special tokens by name
  /// Tokens that the files name, in the order in which those that have no id yet get the next free ones.
  std::vector<AddedToken> added;

  /// A key of tokenizer_config.json; none if it is not true or false.
  std::optional<bool> flag(const char* key) const {
    const auto at = config.find(key);
    return at != config.end() && at->is_boolean() ? std::optional(at->get<bool>()) : std::nullopt;
  }
};
/// As transformers reads them: `added_tokens_decoder` of tokenizer_config.json, or, in folders without it,
/// added_tokens.json and special_tokens_map.json, which goes before tokenizer_config.json.
TokenizerSettings read_tokenizer_settings(const std::filesystem::path& folder);

/// The ids of the named special tokens.
SpecialTokens resolve_special(const TokenizerSettings& settings, const Tokenizer& tokenizer);

}  // namespace qtrain
