#pragma once
#include <cstdint>
#include <string_view>

namespace qtrain {

/// Reads Thrift's compact protocol, the encoding of Parquet's metadata. Throws ErrorKind::input (without a place) for
/// truncated, malformed or too deeply nested data.
class ThriftReader {
 public:
  explicit ThriftReader(std::string_view bytes) : bytes_(bytes) {}

  enum Type : std::uint8_t { stop, yes, no, i8, i16, i32, i64, real, binary, list, set, map, structure };
  struct Field {
    std::int16_t id;
    Type type;
  };

  std::size_t position() const { return at_; }

  /// Calls visit(field) for each field of a struct, which must read or skip the value.
  template <class Visit>
  void read_struct(Visit&& visit) {
    enter();
    std::int16_t last = 0;
    for (Field field = next_field(last); field.type != stop; field = next_field(last)) visit(field);
    --depth_;
  }
  /// Calls visit(element type) for each element of a list.
  template <class Visit>
  void read_list(const Field& field, Visit&& visit) {
    const List list = begin_list(field);
    enter();
    for (std::uint64_t i = 0; i < list.size; ++i) visit(list.type);
    --depth_;
  }

  std::int64_t integer(const Field& field);
  bool boolean(const Field& field);
  std::string_view text(const Field& field);
  void skip(Type type);

 private:
  void skip_element(Type type);  // for elements of a list or map
  struct List {
    Type type;
    std::uint64_t size;
  };
  void enter();
  Field next_field(std::int16_t& last);
  List begin_list(const Field& field);
  std::uint8_t byte();
  std::uint64_t varint();
  std::int64_t zigzag();
  std::string_view take(std::uint64_t size);

  std::string_view bytes_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace qtrain
