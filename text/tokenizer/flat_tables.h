#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "core/keyed_hash.h"

namespace qtrain {

/// Hash table from strings to ids: open addressing, load factor at most 1/2. Lookups do not allocate.
class StringIds {
 public:
  explicit StringIds(std::size_t expected = 0) : slots_(std::bit_ceil(2 * expected + 2)) {}

  std::uint64_t hash(std::string_view key) const { return keyed_hash(key, key_); }
  /// Keeps the first id of a key.
  void insert(std::string_view key, std::int32_t id) {
    if (2 * (count_ + 1) > slots_.size()) grow();
    Slot& slot = slots_[probe(key, hash(key))];
    if (slot.id >= 0) return;
    slot = {hash(key), static_cast<std::uint32_t>(text_.size()), static_cast<std::uint32_t>(key.size()), id};
    text_ += key;
    ++count_;
  }
  /// Returns -1 if absent.
  std::int32_t find(std::string_view key) const { return find(key, hash(key)); }
  std::int32_t find(std::string_view key, std::uint64_t hash) const { return slots_[probe(key, hash)].id; }

 private:
  struct Slot {
    std::uint64_t hash = 0;
    std::uint32_t begin = 0, size = 0;
    std::int32_t id = -1;
  };
  std::size_t probe(std::string_view key, std::uint64_t hash) const {
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t i = hash & mask;; i = (i + 1) & mask) {
      const Slot& s = slots_[i];
      if (s.id < 0) return i;
      if (s.hash == hash && s.size == key.size() && std::memcmp(text_.data() + s.begin, key.data(), key.size()) == 0)
        return i;
    }
  }
  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& s : old)
      if (s.id >= 0) slots_[probe(std::string_view(text_).substr(s.begin, s.size), s.hash)] = s;
  }

  HashKey key_ = hash_key();
  std::vector<Slot> slots_;
  std::string text_;
  std::size_t count_ = 0;
};

/// Hash table from pairs of non-negative numbers to pairs of values: open addressing, load factor at most 1/2.
class PairTable {
 public:
  struct Value {
    std::int32_t first = -1, second = -1;
  };
  explicit PairTable(std::size_t expected = 0) : slots_(std::bit_ceil(2 * expected + 2)) {}

  /// The value of the pair; the caller fills it in if it is new (first < 0).
  Value& operator()(std::int32_t left, std::int32_t right) {
    if (2 * (count_ + 1) > slots_.size()) grow();
    Slot& slot = slots_[probe(key_of(left, right))];
    if (slot.key == kEmpty) {
      slot.key = key_of(left, right);
      ++count_;
    }
    return slot.value;
  }
  /// Returns null if absent.
  const Value* find(std::int32_t left, std::int32_t right) const {
    const Slot& slot = slots_[probe(key_of(left, right))];
    return slot.key == kEmpty ? nullptr : &slot.value;
  }
  template <class F>
  void each(F&& f) const {
    for (const Slot& s : slots_)
      if (s.key != kEmpty) f(static_cast<std::int32_t>(s.key >> 32), static_cast<std::int32_t>(s.key));
  }

 private:
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  struct Slot {
    std::uint64_t key = kEmpty;
    Value value;
  };
  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
  }
  std::size_t probe(std::uint64_t key) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t i = keyed_hash(key, key_) & mask;
    while (slots_[i].key != key && slots_[i].key != kEmpty) i = (i + 1) & mask;
    return i;
  }
  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& s : old)
      if (s.key != kEmpty) slots_[probe(s.key)] = s;
  }

  HashKey key_ = hash_key();
  std::vector<Slot> slots_;
  std::size_t count_ = 0;
};

}  // namespace qtrain
