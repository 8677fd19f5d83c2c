#pragma once
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "text/tokenizer/flat_tables.h"
#include "text/tokenizer/model.h"

namespace qtrain {

/// Caches the tokens of short words; new words evict old ones. Thread-safe.
class WordCache {
 public:
  /// Appends the tokens of the word if it is cached.
  bool find(std::string_view word, std::uint64_t hash, std::vector<PieceToken>& out) const {
    if (word.size() > kMaxBytes) return false;
    const Shard& shard = shards_[hash % kShards];
    const std::lock_guard lock(shard.mutex);
    if (shard.slots.empty()) return false;
    const Slot& s = shard.slots[hash / kShards % kSlots];
    if (s.hash != hash || s.size != word.size() || std::memcmp(s.word.data(), word.data(), s.size) != 0) return false;
    for (std::size_t i = 0; i < s.count; ++i) out.push_back({s.ids[i], s.begins[i], s.ends[i]});
    return true;
  }
  void put(std::string_view word, std::uint64_t hash, const PieceToken* tokens, std::size_t count) {
    if (word.empty() || word.size() > kMaxBytes || count > kMaxTokens) return;
    Shard& shard = shards_[hash % kShards];
    const std::lock_guard lock(shard.mutex);
    if (shard.slots.empty()) shard.slots.resize(kSlots);
    Slot& s = shard.slots[hash / kShards % kSlots];
    s.hash = hash;
    s.size = static_cast<std::uint8_t>(word.size());
    s.count = static_cast<std::uint8_t>(count);
    std::memcpy(s.word.data(), word.data(), word.size());
    for (std::size_t i = 0; i < count; ++i) {
      s.ids[i] = tokens[i].id;
      s.begins[i] = static_cast<std::uint8_t>(tokens[i].begin);
      s.ends[i] = static_cast<std::uint8_t>(tokens[i].end);
    }
  }

 private:
  static constexpr std::size_t kShards = 64, kSlots = 1024, kMaxBytes = 30, kMaxTokens = 10;
  struct Slot {
    std::uint64_t hash = 0;
    std::uint8_t size = 0, count = 0;  // a slot with size 0 is empty
    std::array<char, kMaxBytes> word;
    std::array<std::uint8_t, kMaxTokens> begins, ends;
    std::array<std::int32_t, kMaxTokens> ids;
  };
  struct Shard {
    mutable std::mutex mutex;
    std::vector<Slot> slots;
  };
  std::array<Shard, kShards> shards_;
};

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
