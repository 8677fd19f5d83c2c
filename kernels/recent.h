#pragma once
#include <cstddef>
#include <list>
#include <map>
#include <utility>

namespace qtrain {

/// Values by their keys, at most `most` of them: where one more comes, the one that was used longest ago goes.
template <class Key, class Value>
class Recent {
 public:
  explicit Recent(std::size_t max) : max_(max) {}

  /// Null where there is none; valid until the next `add`.
  Value* find(const Key& key) {
    const auto at = entries_.find(key);
    if (at == entries_.end()) return nullptr;
    order_.splice(order_.begin(), order_, at->second.place);
    return &at->second.value;
  }
  /// Of a key that `find` does not find.
  Value& add(const Key& key, Value value) {
    if (entries_.size() == max_) {
      entries_.erase(order_.back());
      order_.pop_back();
    }
    order_.push_front(key);
    return entries_.emplace(key, Entry{std::move(value), order_.begin()}).first->second.value;
  }
  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    Value value;
    typename std::list<Key>::iterator place;  ///< in order_
  };
  std::size_t max_;
  std::list<Key> order_;  ///< used last first
  std::map<Key, Entry> entries_;
};

}  // namespace qtrain
