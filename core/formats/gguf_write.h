#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/gguf.h"
#include "core/os/slow_result.h"

namespace qtrain {

/// Collects the key-value section of a GGUF file. A duplicate key is an internal error.
class GgufMetadata {
 public:
  void put_text(const std::string& key, std::string_view value);
  void put_integer(const std::string& key, std::uint32_t value);
  void put_number(const std::string& key, float value);
  void put_flag(const std::string& key, bool value);
  void put_texts(const std::string& key, std::span<const std::string> values);
  void put_integers(const std::string& key, std::span<const std::int32_t> values);
  void put_numbers(const std::string& key, std::span<const float> values);

  std::uint64_t count() const { return keys_.size(); }
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(bytes_)); }

 private:
  void begin(const std::string& key, GgufValueType type);
  void begin_array(const std::string& key, GgufValueType type, std::size_t count);

  std::set<std::string> keys_;
  std::string bytes_;
};

/// A tensor whose blocks are produced when it is written.
struct GgufTensorSource {
  std::string name;
  GgufType type = GgufType::f32;
  std::vector<std::int64_t> shape;  ///< outermost first, 1 to 4 extents; the innermost a whole number of blocks
  /// Hands all bytes of the tensor, in order and in chunks of any size, to `append`.
  std::function<void(const std::function<void(std::span<const std::byte>)>& append)> produce;
};

/// Writes a GGUF file of version 3, as gguf-py lays it out: tensors in the order given, each padded to 32 bytes. The
/// file is complete or absent. Errors: ErrorKind::disk; internal if a tensor produces the wrong number of bytes for its
/// shape and type. Returns where the file is.
std::filesystem::path write_gguf(const SlowResult& result, const GgufMetadata& metadata,
                                 std::span<const GgufTensorSource> tensors);

}  // namespace qtrain
