#include "core/formats/gguf_write.h"

#include <bit>

namespace qtrain {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is written without swapping bytes");

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_string(std::string& out, std::string_view text) {
  put(out, static_cast<std::uint64_t>(text.size()));
  out += text;
}

template <class T>
void put_all(std::string& out, std::span<const T> values) {
  out.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

std::uint64_t bytes_of(const GgufTensorSource& tensor) {
  const auto* block = gguf_block(tensor.type);
  check(block != nullptr && !tensor.shape.empty() && tensor.shape.size() <= 4, "not a valid GGUF tensor");
  check(static_cast<std::uint64_t>(tensor.shape.back()) % block->values == 0, "a row must be a whole number of blocks");
  std::uint64_t numel = 1;
  for (const auto extent : tensor.shape) numel *= static_cast<std::uint64_t>(extent);
  return numel / block->values * block->bytes;
}

std::uint64_t padded(std::uint64_t size) {
  return (size + kGgufAlignment - 1) / kGgufAlignment * kGgufAlignment;
}

std::string header_of(const GgufMetadata& metadata, std::span<const GgufTensorSource> tensors) {
  std::string out;
  put(out, kGgufMagic);
  put(out, std::uint32_t{3});
  put(out, static_cast<std::uint64_t>(tensors.size()));
  put(out, metadata.count());
  const auto values = metadata.bytes();
  out.append(reinterpret_cast<const char*>(values.data()), values.size());
  std::uint64_t offset = 0;
  for (const auto& t : tensors) {
    put_string(out, t.name);
    put(out, static_cast<std::uint32_t>(t.shape.size()));
    for (auto extent = t.shape.rbegin(); extent != t.shape.rend(); ++extent)
      put(out, static_cast<std::uint64_t>(*extent));
    put(out, static_cast<std::uint32_t>(t.type));
    put(out, offset);
    offset += padded(bytes_of(t));
  }
  out.resize(padded(out.size()));
  return out;
}

}  // namespace

void GgufMetadata::begin(const std::string& key, GgufValueType type) {
  check(keys_.insert(key).second, "a GGUF key is given twice");
  put_string(bytes_, key);
  put(bytes_, type);
}

void GgufMetadata::begin_array(const std::string& key, GgufValueType type, std::size_t count) {
  begin(key, GgufValueType::array);
  put(bytes_, type);
  put(bytes_, static_cast<std::uint64_t>(count));
}

void GgufMetadata::put_text(const std::string& key, std::string_view value) {
  begin(key, GgufValueType::string);
  put_string(bytes_, value);
}

void GgufMetadata::put_integer(const std::string& key, std::uint32_t value) {
  begin(key, GgufValueType::u32);
  put(bytes_, value);
}

void GgufMetadata::put_number(const std::string& key, float value) {
  begin(key, GgufValueType::f32);
  put(bytes_, value);
}

void GgufMetadata::put_flag(const std::string& key, bool value) {
  begin(key, GgufValueType::boolean);
  put(bytes_, static_cast<std::uint8_t>(value));
}

void GgufMetadata::put_texts(const std::string& key, std::span<const std::string> values) {
  begin_array(key, GgufValueType::string, values.size());
  for (const auto& text : values) put_string(bytes_, text);
}

void GgufMetadata::put_integers(const std::string& key, std::span<const std::int32_t> values) {
  begin_array(key, GgufValueType::i32, values.size());
  put_all(bytes_, values);
}

void GgufMetadata::put_numbers(const std::string& key, std::span<const float> values) {
  begin_array(key, GgufValueType::f32, values.size());
  put_all(bytes_, values);
}

std::filesystem::path write_gguf(const SlowResult& result, const GgufMetadata& metadata,
                                 std::span<const GgufTensorSource> tensors) {
  const std::string header = header_of(metadata, tensors);
  constexpr std::byte kPadding[kGgufAlignment]{};
  return write_result(result, [&](const auto& append) {
    append(std::as_bytes(std::span(header)));
    for (const auto& tensor : tensors) {
      std::uint64_t written = 0;
      tensor.produce([&](std::span<const std::byte> bytes) {
        written += bytes.size();
        append(bytes);
      });
      check(written == bytes_of(tensor), "a tensor produced the wrong number of bytes");
      append(std::span(kPadding).first(padded(written) - written));
    }
  });
}

}  // namespace qtrain
