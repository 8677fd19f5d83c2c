#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/json.h"

namespace qtrain {

/// A token of a piece and how many bytes of the piece it stands for.
struct PieceToken {
  std::int32_t id;
  std::uint32_t begin, end;
};

/// Byte pair encoding of the tokenizers library. Byte-level vocabularies are kept as raw bytes.
class Bpe {
 public:
  enum class Alphabet : std::uint8_t { characters, bytes };

  /// The `model` of a tokenizer.json. Errors (ErrorKind::input): merges of unknown tokens, unsupported options.
  Bpe(const Json& json, Alphabet alphabet);

  /// Appends the tokens of one piece; time n log n in its length.
  void encode(std::string_view piece, std::vector<PieceToken>& out) const;

  std::int32_t size() const { return static_cast<std::int32_t>(tokens_.size()); }
  std::optional<std::int32_t> id_of(std::string_view token) const;
  /// As in the file (byte-level tokens in printable characters).
  const std::string& token(std::int32_t id) const { return tokens_[static_cast<std::size_t>(id)]; }

 private:
  struct Merge {
    std::int32_t rank, id;
  };
  struct Symbol {
    std::int32_t id, previous, next;
    std::uint32_t begin, end;
  };
  void read_vocab(const Json& vocab);
  void read_merges(const Json& merges);
  std::vector<Symbol> symbols_of(std::string_view piece) const;
  void add_character(std::string_view piece, std::size_t begin, std::size_t size, std::vector<Symbol>& out) const;
  void merge_all(std::vector<Symbol>& symbols) const;
  const Merge* find_merge(std::int32_t left, std::int32_t right) const;
  bool is_whole(std::string_view piece, std::int32_t id) const;
  void encode_by_merges(std::string_view piece, std::vector<PieceToken>& out) const;

  Alphabet alphabet_;
  bool byte_fallback_ = false, fuse_unk_ = false, ignore_merges_ = false;
  std::optional<std::int32_t> unk_;
  std::vector<std::string> tokens_;  // as in the file
  std::unordered_map<std::string, std::int32_t> by_name_;
  std::unordered_map<std::string, std::int32_t> by_text_;  // in the alphabet the model works on
  std::unordered_map<std::uint64_t, Merge> merges_;
  std::vector<std::int32_t> byte_ids_;  // of each byte: its token (bytes), or <0xNN> (byte_fallback); -1 none
  // Whether merging a token's own text gives the token: 0 not tried, 1 yes, 2 no. Found once, then a word that is a
  // token needs no merging.
  mutable std::unique_ptr<std::atomic<std::uint8_t>[]> whole_;
};

}  // namespace qtrain
