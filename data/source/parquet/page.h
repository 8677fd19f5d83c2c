#pragma once
#include <cstdint>
#include <string_view>

namespace qtrain {

/// A page of a column chunk: its header, and its bytes as stored in the file.
struct ParquetPage {
  enum class Kind : std::uint8_t { data, data_v2, dictionary, other };
  Kind kind = Kind::other;
  std::uint64_t values = 0;  ///< including nulls
  std::uint64_t size = 0;    ///< decompressed
  std::int64_t encoding = 0;
  bool is_compressed = true;
  std::uint64_t repetition_size = 0, definition_size = 0;  ///< for data_v2
  std::string_view bytes;
};

/// Iterates over the pages of a column chunk.
class ParquetPages {
 public:
  explicit ParquetPages(std::string_view chunk) : left_(chunk) {}
  /// Throws ErrorKind::input (without a place) for a missing or damaged page.
  ParquetPage next();

 private:
  std::string_view left_;
};

}  // namespace qtrain
