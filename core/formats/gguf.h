#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/json.h"
#include "core/os/file.h"

namespace qtrain {

/// The GGUF tensor types that the program knows, with their numbers in the file format.
enum class GgufType : std::uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  q8_k = 15,
  iq4_nl = 20,
  iq4_xs = 23,
  i8 = 24,
  i16 = 25,
  i32 = 26,
  i64 = 27,
  f64 = 28,
  bf16 = 30,
  mxfp4 = 39,
};

/// Value types of the key-value section.
enum class GgufValueType : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

/// "GGUF" as a little-endian number, and the alignment of tensors if the file does not specify one.
inline constexpr std::uint32_t kGgufMagic = 0x46554747;
inline constexpr std::uint64_t kGgufAlignment = 32;

/// Values and bytes of one block; a row is a whole number of blocks.
struct GgufBlock {
  GgufType type;
  std::string_view name;
  std::uint64_t values, bytes;
};

/// Null for a type that this program does not know.
const GgufBlock* gguf_block(GgufType type);
/// "Q4_1"; "type 123" for an unknown one.
std::string name_of(GgufType type);

/// A tensor of the file: a view into the mapping.
struct GgufTensor {
  GgufType type = GgufType::f32;
  std::vector<std::int64_t> shape;  ///< outermost first (the file has the reverse order), 1 to 4 extents
  std::span<const std::byte> data;

  std::int64_t numel() const;
  /// Values of the innermost dimension.
  std::int64_t row() const { return shape.back(); }
};

/// A GGUF file (versions 2 and 3, little endian), mapped. Hostile files are expected: every count, length and offset
/// is checked against the size of the file before anything is allocated. Throws ErrorKind::input with the reason.
class GgufFile {
 public:
  explicit GgufFile(const std::filesystem::path& file);

  const std::filesystem::path& path() const { return path_; }
  std::uint32_t version() const { return version_; }

  /// Null if absent. An f32 becomes the double with the same shortest decimal: 1e-05, not 9.999999747378752e-06.
  const Json* find(const std::string& key) const;
  const std::map<std::string, Json>& values() const { return values_; }

  /// Typed values. A missing key without a fallback, or a value of a different type, is an input error that names the
  /// key.
  const std::string& text(const std::string& key) const;
  std::int64_t integer(const std::string& key) const;
  std::int64_t integer_or(const std::string& key, std::int64_t fallback) const;
  double number_or(const std::string& key, double fallback) const;
  const Json::array_t& array(const std::string& key) const;

  const std::map<std::string, GgufTensor>& tensors() const { return tensors_; }
  /// Throws an input error that names the file if there is no such tensor.
  const GgufTensor& tensor(const std::string& name) const;

 private:
  const Json& value(const std::string& key) const;

  std::filesystem::path path_;
  MappedFile file_;
  std::uint32_t version_ = 0;
  std::map<std::string, Json> values_;
  std::map<std::string, GgufTensor> tensors_;
};

}  // namespace qtrain
