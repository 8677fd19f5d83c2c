#pragma once
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace qtrain {

/// Reads a little-endian number at an offset that has been checked.
template <class T>
T number_at(std::string_view bytes, std::uint64_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

/// A table inside a FlatBuffers buffer. Members are numbered in schema order, from 0; an absent member has its default
/// value. Throws ErrorKind::input (without a place) for anything outside the buffer.
class FlatTable {
 public:
  class Vector;

  /// The root table.
  explicit FlatTable(std::string_view buffer);

  template <class T>
  T scalar(int member, T otherwise) const {
    const std::uint64_t at = place_of(member, sizeof(T));
    return at == 0 ? otherwise : number_at<T>(buffer_, at);
  }
  std::optional<FlatTable> table(int member) const;
  std::string_view text(int member) const;
  /// A vector of elements of `element_size` bytes; offsets to tables have 4 bytes.
  Vector vector(int member, std::size_t element_size) const;

 private:
  FlatTable(std::string_view buffer, std::uint64_t at);
  std::uint64_t place_of(int member, std::size_t size) const;  // 0: absent
  std::uint64_t target_of(int member) const;                   // follows the member's offset; 0: absent

  std::string_view buffer_;
  std::uint64_t at_ = 0, vtable_ = 0;
  std::uint16_t vtable_size_ = 0;
};

/// Consecutive elements of equal size.
class FlatTable::Vector {
 public:
  std::uint64_t size() const { return size_; }
  FlatTable table(std::uint64_t i) const;
  /// The number that starts `offset` bytes into element `i`.
  template <class T>
  T scalar(std::uint64_t i, std::size_t offset = 0) const {
    require_element(i, offset + sizeof(T));
    return number_at<T>(buffer_, at_ + i * element_size_ + offset);
  }

 private:
  friend class FlatTable;
  void require_element(std::uint64_t i, std::size_t size) const;

  std::string_view buffer_;
  std::uint64_t at_ = 0, size_ = 0;
  std::size_t element_size_ = 0;
};

}  // namespace qtrain
