#include "data/source/parquet/thrift.h"

#include "core/error.h"

namespace qtrain {
namespace {

constexpr int kMaxThriftDepth = 64;

void require_thrift(bool fine, const char* why) {
  if (!fine) fail(ErrorKind::input, {.cause = std::string("damaged Parquet metadata: ") + why});
}

}  // namespace

void ThriftReader::enter() {
  require_thrift(++depth_ <= kMaxThriftDepth, "nested too deeply");
}

std::uint8_t ThriftReader::byte() {
  require_thrift(at_ < bytes_.size(), "it ends too early");
  return static_cast<std::uint8_t>(bytes_[at_++]);
}

std::uint64_t ThriftReader::varint() {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const std::uint8_t b = byte();
    value |= static_cast<std::uint64_t>(b & 0x7f) << shift;
    if (b < 0x80) return value;
  }
  require_thrift(false, "a number is too long");
  return 0;
}

std::int64_t ThriftReader::zigzag() {
  const std::uint64_t v = varint();
  return static_cast<std::int64_t>(v >> 1) ^ -static_cast<std::int64_t>(v & 1);
}

std::string_view ThriftReader::take(std::uint64_t size) {
  require_thrift(size <= bytes_.size() - at_, "it ends too early");
  const std::string_view part = bytes_.substr(at_, size);
  at_ += size;
  return part;
}

ThriftReader::Field ThriftReader::next_field(std::int16_t& last) {
  const std::uint8_t head = byte();
  const auto type = static_cast<Type>(head & 15);
  if (type == stop) return {0, stop};
  require_thrift(type <= structure, "an unknown type");
  last = static_cast<std::int16_t>(head >> 4 ? last + (head >> 4) : zigzag());
  return {last, type};
}

ThriftReader::List ThriftReader::begin_list(const Field& field) {
  require_thrift(field.type == list || field.type == set, "a list was expected");
  const std::uint8_t head = byte();
  const std::uint64_t size = head >> 4 == 15 ? varint() : head >> 4;
  require_thrift(size <= bytes_.size() - at_, "a list is longer than its bytes");
  require_thrift((head & 15) > stop && (head & 15) <= structure, "an unknown type");
  return {static_cast<Type>(head & 15), size};
}

std::int64_t ThriftReader::integer(const Field& field) {
  if (field.type == i8) return static_cast<std::int8_t>(byte());
  require_thrift(field.type == i16 || field.type == i32 || field.type == i64, "an integer was expected");
  return zigzag();
}

bool ThriftReader::boolean(const Field& field) {
  require_thrift(field.type == yes || field.type == no, "true or false was expected");
  return field.type == yes;
}

std::string_view ThriftReader::text(const Field& field) {
  require_thrift(field.type == binary, "text was expected");
  return take(varint());
}

void ThriftReader::skip_element(Type type) {
  type == yes || type == no ? void(byte()) : skip(type);
}

void ThriftReader::skip(Type type) {
  switch (type) {
    case yes:
    case no: return;  // for a field, the type is the value
    case i8: byte(); return;
    case i16:
    case i32:
    case i64: zigzag(); return;
    case real: take(8); return;
    case binary: take(varint()); return;
    case list:
    case set: read_list({0, list}, [&](Type element) { skip_element(element); }); return;
    case map: {
      const std::uint64_t size = varint();
      if (size == 0) return;
      const std::uint8_t types = byte();
      require_thrift(size <= bytes_.size() - at_, "a map is longer than its bytes");
      enter();
      for (std::uint64_t i = 0; i < size; ++i) {
        skip_element(static_cast<Type>(types >> 4));
        skip_element(static_cast<Type>(types & 15));
      }
      --depth_;
      return;
    }
    case structure: read_struct([&](const Field& field) { skip(field.type); }); return;
    default: require_thrift(false, "an unknown type");
  }
}

}  // namespace qtrain
