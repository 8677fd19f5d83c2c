#pragma once
#include <array>
#include <atomic>
#include <memory>

#include "text/tokenizer/flat_tables.h"
#include "text/tokenizer/vocabulary.h"
#include "text/tokenizer/word_cache.h"

namespace qtrain {

/// Byte pair encoding like the tokenizers library; O(n log n) in the length of a piece.
class Bpe final : public TokenModel {
 public:
  /// Throws ErrorKind::input for merges of unknown tokens and for unsupported options.
  Bpe(const JsonView& json, Alphabet alphabet);

  void encode(std::string_view piece, std::vector<PieceToken>& out) const override;
  std::int32_t count() const override { return vocabulary_.count(); }
  std::int32_t end_id() const override { return vocabulary_.end_id(); }
  std::optional<std::int32_t> id_of(std::string_view token) const override;
  std::optional<std::string_view> token(std::int32_t id) const override { return vocabulary_.token(id); }

 private:
  void read_texts();
  void read_merges(const Json& merges);
  bool merges_keep_words() const;
  void append_symbols(std::string_view word, std::vector<PieceToken>& out) const;
  void append_byte_symbols(std::string_view word, std::vector<PieceToken>& out) const;
  void merge_short(std::vector<PieceToken>& tokens, std::size_t first) const;
  void merge_long(std::vector<PieceToken>& tokens, std::size_t first) const;
  void append_merged(std::string_view word, std::vector<PieceToken>& out) const;
  void append_word(std::string_view word, std::vector<PieceToken>& out) const;
  bool is_whole(std::string_view word, std::int32_t id) const;

  Alphabet alphabet_;
  bool byte_fallback_ = false, fuse_unk_ = false, ignore_merges_ = false, cut_words_ = false;
  std::int32_t unk_ = -1;
  Vocabulary vocabulary_;
  StringIds by_text_;                       // token texts in the model's alphabet
  PairTable merges_;                        // left, right -> rank, merged token
  std::array<std::int32_t, 256> byte_ids_;  // token of each byte (bytes), or <0xNN> (byte_fallback); -1 if none
  // Whether merging a token's own text yields the token: 0 not tried, 1 yes, 2 no. Once known, a word that is such a
  // token needs no merging.
  std::unique_ptr<std::atomic<std::uint8_t>[]> whole_;
  std::unique_ptr<WordCache> cache_;
};

}  // namespace qtrain
