#pragma once
#include <cstddef>
#include <list>
#include <map>
#include <utility>

namespace qtrain {

/// LRU cache of at most `max` entries: when it is full, `add` evicts the least recently used one.
template <class Key, class Value>
class LruCache {
 public:
  explicit LruCache(std::size_t max) : max_(max) {}

  /// Marks the entry as used. Returns null if there is none; the pointer is valid until the next `add`.
  Value* find(const Key& key) {
    const auto at = entries_.find(key);
    if (at == entries_.end()) return nullptr;
    order_.splice(order_.begin(), order_, at->second.place);
    return &at->second.value;
  }
  /// Adds an entry for a key that is not in the cache.
  Value& add(const Key& key, Value value) {
    if (entries_.size() == max_) {
      entries_.erase(order_.back());
      order_.pop_back();
    }
    order_.push_front(key);
    return entries_.emplace(key, Entry{std::move(value), order_.begin()}).first->second.value;
  }

 private:
  struct Entry {
    Value value;
    typename std::list<Key>::iterator place;  ///< position in order_
  };
  std::size_t max_;
  std::list<Key> order_;  ///< most recently used first
  std::map<Key, Entry> entries_;
};

}  // namespace qtrain
