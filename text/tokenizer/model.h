#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/json_view.h"
#include "text/tokenizer/flat_tables.h"

namespace qtrain {

/// Upper bound of all ids, so that a damaged file cannot cause huge tables.
constexpr std::int64_t kMaxTokenId = std::int64_t{1} << 24;
/// The longest token of Unigram and of sentencepiece, in bytes. At every position, a text may be compared with all of
/// it, so that the time to tokenize grows with the product of both.
constexpr std::size_t kMaxUnigramToken = 1024;

/// A token of a piece and the byte range of the piece that it covers.
struct PieceToken {
  std::int32_t id;
  std::uint32_t begin, end;
};

/// What a tokenizer's model works on: the characters of a piece, or its bytes if the vocabulary is byte-level; its
/// tokens are then stored as raw bytes.
enum class Alphabet : std::uint8_t { characters, bytes };

/// The `model` of a tokenizer.json: splits pieces into vocabulary tokens. Thread-safe.
class TokenModel {
 public:
  virtual ~TokenModel() = default;
  /// Appends the tokens of one piece of valid UTF-8.
  virtual void encode(std::string_view piece, std::vector<PieceToken>& out) const = 0;
  /// Number of tokens, which is also the next free id; ids may exceed it if the file has gaps.
  virtual std::int32_t count() const = 0;
  /// The highest id plus one.
  virtual std::int32_t end_id() const = 0;
  virtual std::optional<std::int32_t> id_of(std::string_view token) const = 0;
  /// The token as in the file (byte-level tokens in printable characters); none for an id in a gap.
  virtual std::optional<std::string_view> token(std::int32_t id) const = 0;
};

/// Throws ErrorKind::input about the `model` of a tokenizer.json.
[[noreturn]] void refuse_model(const std::string& cause);

/// Creates a BPE or Unigram model; throws ErrorKind::input for other types.
std::unique_ptr<TokenModel> make_token_model(const JsonView& json, Alphabet alphabet);

/// Tokens as named in the file, with their ids.
class Vocabulary {
 public:
  /// Throws ErrorKind::input for ids that are out of range or far above the number of tokens.
  explicit Vocabulary(const std::vector<std::pair<std::string_view, std::int64_t>>& entries);

  std::int32_t count() const { return count_; }
  std::int32_t end_id() const { return static_cast<std::int32_t>(tokens_.size()); }
  /// Returns -1 if absent.
  std::int32_t find(std::string_view token) const { return ids_.find(token); }
  std::optional<std::string_view> token(std::int32_t id) const {
    if (id < 0 || id >= end_id() || !known_[static_cast<std::size_t>(id)]) return std::nullopt;
    return tokens_[static_cast<std::size_t>(id)];
  }
  /// Finds the token of a byte: "<0x0A>" for 10.
  std::int32_t find_byte(unsigned char byte) const;

 private:
  StringIds ids_;
  std::vector<std::string> tokens_;
  std::vector<bool> known_;
  std::int32_t count_ = 0;
};

}  // namespace qtrain
