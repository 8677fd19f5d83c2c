#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/json_view.h"

namespace qtrain {

/// Ids are below this everywhere, so that a damaged file can't make tables of any size.
constexpr std::int64_t kMaxTokenId = std::int64_t{1} << 24;

/// A token of a piece and the bytes of the piece that it stands for.
struct PieceToken {
  std::int32_t id;
  std::uint32_t begin, end;
};

/// What a tokenizer's model works on: the characters of a piece, or its bytes under a byte-level vocabulary, whose
/// tokens are then kept as raw bytes.
enum class Alphabet : std::uint8_t { characters, bytes };

/// The `model` of a tokenizer.json: cuts pieces into tokens of a vocabulary. Safe to use from several threads.
class TokenModel {
 public:
  virtual ~TokenModel() = default;
  /// Appends the tokens of one piece of valid UTF-8.
  virtual void encode(std::string_view piece, std::vector<PieceToken>& out) const = 0;
  /// Number of tokens, which is the next free id; ids may lie above it where the file has gaps.
  virtual std::int32_t count() const = 0;
  /// One above the highest id.
  virtual std::int32_t end_id() const = 0;
  virtual std::optional<std::int32_t> id_of(std::string_view token) const = 0;
  /// As in the file (byte-level tokens in printable characters); nothing for an id in a gap.
  virtual std::optional<std::string_view> token(std::int32_t id) const = 0;
};

/// ErrorKind::input about the `model` of a tokenizer.json.
[[noreturn]] void refuse_model(const std::string& cause);

/// BPE or Unigram; anything else is an input error.
std::unique_ptr<TokenModel> make_token_model(const JsonView& json, Alphabet alphabet);

}  // namespace qtrain
