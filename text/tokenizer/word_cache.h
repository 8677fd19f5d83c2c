#pragma once
#include <array>
#include <cstring>
#include <mutex>
#include <string_view>
#include <vector>

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

}  // namespace qtrain
