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

/// The tokenizer of a model folder: tokenizer.json if it exists, or else tokenizer.model (sentencepiece). `named`:
/// special tokens that override those of the folder. Throws ErrorKind::input if neither file exists or a component is
/// not supported.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& folder,
                                          const std::map<std::string, std::string>& named = {});

/// How a tokenizer.json is parsed: of bounded size; the last one of duplicate keys counts.
inline constexpr JsonRules kTokenizerRules{.duplicate_keys = true, .max_bytes = std::uint64_t{256} << 20};

/// Reads a tokenizer.json without its added tokens, which go to `added`, since there may be a million of them.
Json read_tokenizer_file(const std::filesystem::path& file, std::vector<AddedToken>& added);

/// Settings from the JSON files next to the vocabulary.
struct TokenizerSettings {
  std::filesystem::path folder;
  Json config;                               ///< tokenizer_config.json, or {}
  std::map<std::string, std::string> named;  ///< special tokens by name
  /// Tokens named by the files, in the order in which those without an id get the next free ones.
  std::vector<AddedToken> added;

  /// A boolean key of tokenizer_config.json; none if it is absent or not a boolean.
  std::optional<bool> flag(const char* key) const {
    const auto at = config.find(key);
    return at != config.end() && at->is_boolean() ? std::optional(at->get<bool>()) : std::nullopt;
  }
};
/// Reads settings like transformers: `added_tokens_decoder` of tokenizer_config.json or, in folders without it,
/// added_tokens.json and special_tokens_map.json, which takes precedence over tokenizer_config.json.
TokenizerSettings read_tokenizer_settings(const std::filesystem::path& folder);

/// Looks up the ids of the named special tokens.
SpecialTokens resolve_special(const TokenizerSettings& settings, const Tokenizer& tokenizer);

}  // namespace qtrain
