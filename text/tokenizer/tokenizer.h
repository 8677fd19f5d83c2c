#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"

namespace qtrain {

struct EncodeOptions {
  bool add_special = true;  ///< add what the post-processor adds: BOS, EOS
};
struct DecodeOptions {
  bool skip_special = false;
};

/// The named special tokens of a tokenizer folder (tokenizer_config.json, special_tokens_map.json).
struct SpecialTokens {
  std::map<std::string, std::string> named;  ///< "bos_token" -> "<s>", ...: the variables of chat templates
  std::optional<std::int32_t> bos_id, eos_id, pad_id, unk_id;
  bool add_bos = false, add_eos = false;  ///< whether encode(add_special) adds them
};

/// Converts text to token ids and back. Thread-safe.
class Tokenizer {
 public:
  /// Ids and the byte range [begin, end) of each. Unlike in the library, they are never trimmed (`trim_offsets`): a
  /// token includes its space.
  struct Encoding {
    std::vector<std::int32_t> ids;
    std::vector<std::pair<std::size_t, std::size_t>> offsets;
  };

  virtual ~Tokenizer() = default;
  virtual std::vector<std::int32_t> encode(std::string_view text, EncodeOptions options = {}) const = 0;
  virtual Encoding encode_with_offsets(std::string_view text, EncodeOptions options = {}) const = 0;
  /// An id outside the vocabulary, which models with padded embeddings may choose, has no text.
  virtual std::string decode(std::span<const std::int32_t> ids, DecodeOptions options = {}) const = 0;
  /// Ids are in [0, size()), including added tokens.
  virtual std::int32_t size() const = 0;
  virtual std::optional<std::int32_t> id_of(std::string_view token) const = 0;
  virtual std::string token(std::int32_t id) const = 0;
  virtual bool is_special(std::int32_t id) const = 0;
  virtual const SpecialTokens& special() const = 0;
};

/// The bytes that a token represents within a text; possibly only a part of a character.
std::string token_bytes(const Tokenizer& tokenizer, std::int32_t id);

/// Converts ids that arrive one by one to text; holds back the bytes of an incomplete character.
class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer& tokenizer, DecodeOptions options) : tokenizer_(tokenizer), options_(options) {}
  /// Returns the text that the id adds, possibly empty.
  std::string push(std::int32_t id);
  /// Returns what was held back.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  DecodeOptions options_;
  std::vector<std::int32_t> ids_;
  std::size_t context_ = 0, visible_ = 0;
};

}  // namespace qtrain
