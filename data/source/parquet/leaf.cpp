#include "data/source/parquet/leaf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "core/error.h"
#include "data/source/parquet/encodings.h"
#include "data/source/parquet/page.h"

namespace qtrain {
namespace {

enum Encoding : std::int64_t {
  kPlain = 0,
  kPlainDictionary = 2,
  kRle = 3,
  kDeltaBinary = 5,
  kDeltaLength = 6,
  kDeltaBytes = 7,
  kRleDictionary = 8,
  kByteStreamSplit = 9,
};

bool is_text(const ParquetLeaf& leaf) {
  return leaf.kind == LeafKind::text || leaf.kind == LeafKind::json;
}

int bytes_of(ParquetType type) {
  return type == ParquetType::int32 || type == ParquetType::real32 ? 4 : 8;
}

template <class T>
T number_of(std::string_view bytes, std::size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

/// Decodes the values of pages into a LeafValues.
class LeafReader {
 public:
  explicit LeafReader(const LeafRequest& request) : request_(request), leaf_(request.leaf) {}

  LeafValues read() {
    if (!request_.chunk.has_codec)
      fail(ErrorKind::input, {.cause = "compressed with codec " + std::to_string(request_.chunk.codec_number) +
                                       " (4: Brotli, 5: old LZ4), which is not supported",
                              .remedy = "Save it with snappy, gzip, zstd or lz4, or without compression."});
    ParquetPages pages(request_.file.substr(request_.chunk.begin, request_.chunk.size));
    while (levels_ < static_cast<std::uint64_t>(request_.chunk.values)) {
      const ParquetPage page = pages.next();
      if (page.kind == ParquetPage::Kind::dictionary)
        read_dictionary(page);
      else if (page.kind != ParquetPage::Kind::other)
        read_data(page);
    }
    begin_rows();
    return std::move(out_);
  }

 private:
  std::string_view contents(const ParquetPage& page, std::string_view bytes, std::uint64_t size) {
    const Codec codec = page.is_compressed ? request_.chunk.codec : Codec::none;
    if (codec == Codec::none) {
      require_page(bytes.size() == size, "its size is wrong");
      return bytes;
    }
    if (size == 0) return {};
    request_.memory.add(size);
    out_.pages.push_back(decompress({.codec = codec, .bytes = bytes, .size = size}));
    return out_.pages.back().view();
  }

  /// Memory for a value, its levels, and the row that may start with it.
  std::uint64_t bytes_of_value() const {
    const std::uint64_t levels = (leaf_.max_definition > 0) + (leaf_.max_repetition > 0);
    return levels + 2 * sizeof(std::uint32_t) + (is_text(leaf_) ? sizeof(std::string_view) : sizeof(std::int64_t));
  }

  void read_dictionary(const ParquetPage& page) {
    require_page(page.values <= page.size * 8, "a dictionary has more values than its bytes can hold");
    request_.memory.add(page.values * bytes_of_value());
    LeafValues values = std::exchange(out_, {});
    const std::string_view bytes = contents(page, page.bytes, page.size);
    read_plain(bytes, page.values);
    dictionary_ = std::exchange(out_, std::move(values));
    for (OwnedBytes& kept : dictionary_.pages) out_.pages.push_back(std::move(kept));
  }

  void read_data(const ParquetPage& page) {
    require_page(page.values <= static_cast<std::uint64_t>(request_.chunk.values) - levels_,
                 "it has more values than stated");
    request_.memory.add(page.values * bytes_of_value());
    std::string_view bytes = page.bytes;
    std::uint64_t size = page.size;
    std::string_view repetition, definition;
    if (page.kind == ParquetPage::Kind::data_v2) {  // levels precede the compressed part
      repetition = take_bytes(bytes, page.repetition_size);
      definition = take_bytes(bytes, page.definition_size);
      const std::uint64_t both = page.repetition_size + page.definition_size;
      require_page(both <= size, "its size is wrong");
      bytes = contents(page, bytes, size - both);
    } else {
      bytes = contents(page, bytes, size);
      if (leaf_.max_repetition > 0) repetition = take_prefixed(bytes);
      if (leaf_.max_definition > 0) definition = take_prefixed(bytes);
    }
    add_levels(out_.repetition, repetition, {leaf_.max_repetition, page.values});
    add_levels(out_.definition, definition, {leaf_.max_definition, page.values});
    levels_ += page.values;
    read_values(page.encoding, bytes, values_among(page.values));
  }

  struct LevelCount {
    int most;
    std::uint64_t count;
  };
  static void add_levels(std::vector<std::uint8_t>& out, std::string_view bytes, LevelCount levels) {
    if (levels.most == 0) return;
    const int bits = static_cast<int>(std::bit_width(static_cast<unsigned>(levels.most)));
    for (const std::uint32_t level : read_hybrid(bytes, bits, levels.count)) {
      require_page(level <= static_cast<std::uint32_t>(levels.most), "a level is too high");
      out.push_back(static_cast<std::uint8_t>(level));
    }
  }

  /// Number of non-null values in the most recent page.
  std::size_t values_among(std::uint64_t levels) const {
    if (leaf_.max_definition == 0) return levels;
    return static_cast<std::size_t>(std::count(out_.definition.end() - static_cast<std::ptrdiff_t>(levels),
                                               out_.definition.end(), leaf_.max_definition));
  }

  void read_values(std::int64_t encoding, std::string_view bytes, std::size_t count) {
    if (count == 0) return;
    const bool integer = leaf_.kind == LeafKind::integer || leaf_.kind == LeafKind::unsigned_integer;
    switch (encoding) {
      case kPlain: return read_plain(bytes, count);
      case kPlainDictionary:
      case kRleDictionary: return read_indices(bytes, count);
      case kRle:
        if (leaf_.kind == LeafKind::boolean) return read_boolean_runs(bytes, count);
        break;
      case kDeltaBinary:
        if (integer) return add_integers(read_deltas(bytes, count));
        break;
      case kDeltaLength:
        if (is_text(leaf_)) return add_texts(read_delta_lengths(bytes, count));
        break;
      case kDeltaBytes:
        if (is_text(leaf_)) return read_delta_texts(bytes, count);
        break;
      case kByteStreamSplit:
        if (!is_text(leaf_) && leaf_.kind != LeafKind::boolean) return read_streams(bytes, count);
        break;
      default: break;
    }
    fail(ErrorKind::input, {.cause = "encoding " + std::to_string(encoding) + " of this column is not supported",
                            .remedy = "Save the file again with pyarrow or datasets."});
  }

  void read_plain(std::string_view bytes, std::size_t count) {
    if (is_text(leaf_)) {
      for (std::size_t i = 0; i < count; ++i) out_.texts.push_back(take_prefixed(bytes));
    } else if (leaf_.kind == LeafKind::boolean) {
      require_page(bytes.size() >= (count + 7) / 8, "it ends too early");
      for (std::size_t i = 0; i < count; ++i) out_.integers.push_back((bytes[i / 8] >> (i % 8)) & 1);
    } else {
      require_page(count <= bytes.size() / static_cast<std::size_t>(bytes_of(leaf_.type)), "it ends too early");
      for (std::size_t i = 0; i < count; ++i) add_number(bytes, i);
    }
  }

  void add_number(std::string_view bytes, std::size_t i) {
    switch (leaf_.type) {
      case ParquetType::int32: add_integer(number_of<std::int32_t>(bytes, i)); break;
      case ParquetType::int64: add_integer(number_of<std::int64_t>(bytes, i)); break;
      case ParquetType::real32: out_.reals.push_back(number_of<float>(bytes, i)); break;
      default: out_.reals.push_back(number_of<double>(bytes, i));
    }
  }
  void add_integer(std::int64_t value) {
    constexpr std::int64_t kLow = 0xffffffff;
    const bool narrow = leaf_.kind == LeafKind::unsigned_integer && leaf_.bits == 32;
    out_.integers.push_back(narrow ? value & kLow : value);
  }
  void add_integers(const std::vector<std::int64_t>& values) {
    for (const std::int64_t v : values) add_integer(leaf_.bits == 32 ? static_cast<std::int32_t>(v) : v);
  }
  void add_texts(const std::vector<std::string_view>& texts) {
    out_.texts.insert(out_.texts.end(), texts.begin(), texts.end());
  }

  void read_indices(std::string_view bytes, std::size_t count) {
    const int bits = static_cast<std::uint8_t>(take_bytes(bytes, 1)[0]);
    const auto look_up = [&](auto& values, const auto& known) {
      for (const std::uint32_t index : read_hybrid(bytes, bits, count)) {
        require_page(index < known.size(), "a dictionary index is out of range");
        values.push_back(known[index]);
      }
    };
    if (is_text(leaf_)) {
      const std::size_t before = out_.texts.size();
      look_up(out_.texts, dictionary_.texts);
      for (std::size_t i = before; i < out_.texts.size(); ++i) request_.repeated.add(out_.texts[i].size());
      return;
    }
    if (leaf_.kind == LeafKind::real) return look_up(out_.reals, dictionary_.reals);
    look_up(out_.integers, dictionary_.integers);
  }

  void read_boolean_runs(std::string_view bytes, std::size_t count) {
    for (const std::uint32_t value : read_hybrid(take_prefixed(bytes), 1, count)) out_.integers.push_back(value);
  }

  /// Each text starts with a prefix of the previous one.
  void read_delta_texts(std::string_view bytes, std::size_t count) {
    const std::vector<std::int64_t> shared = read_deltas(bytes, count);
    const std::vector<std::string_view> ends = read_delta_lengths(bytes, count);
    constexpr std::uint64_t kMax = std::uint64_t{1} << 32;
    std::uint64_t size = 0;
    std::string_view last;
    for (std::size_t i = 0; i < count; ++i) {
      size += static_cast<std::uint64_t>(std::max<std::int64_t>(shared[i], 0)) + ends[i].size();
      require_page(shared[i] >= 0 && size < kMax, "text has a wrong length");
    }
    request_.memory.add(size);
    out_.pages.emplace_back(size);
    char* to = out_.pages.back().data();
    for (std::size_t i = 0; i < count; ++i) {
      const auto common = static_cast<std::size_t>(shared[i]);
      require_page(common <= last.size(), "text shares a longer prefix than the previous text has");
      std::copy_n(last.data(), common, to);
      std::copy_n(ends[i].data(), ends[i].size(), to + common);
      last = {to, common + ends[i].size()};
      out_.texts.push_back(last);
      to += last.size();
    }
  }

  /// All first bytes of the values, then all second bytes, and so on.
  void read_streams(std::string_view bytes, std::size_t count) {
    const auto width = static_cast<std::size_t>(bytes_of(leaf_.type));
    require_page(count <= bytes.size() / width, "it ends too early");
    std::string joined(count * width, '\0');
    for (std::size_t i = 0; i < count; ++i)
      for (std::size_t b = 0; b < width; ++b) joined[i * width + b] = bytes[b * count + i];
    for (std::size_t i = 0; i < count; ++i) add_number(joined, i);
  }

  /// Records the starts of rows, which are where the repetition level is 0.
  void begin_rows() {
    std::uint32_t value = 0;
    for (std::uint64_t level = 0; level < levels_; ++level) {
      if (out_.repetition.empty() || out_.repetition[level] == 0) {
        out_.row_levels.push_back(static_cast<std::uint32_t>(level));
        out_.row_values.push_back(value);
      }
      value += out_.definition.empty() || out_.definition[level] == leaf_.max_definition;
    }
    require_page(out_.row_levels.size() == static_cast<std::size_t>(request_.rows),
                 "the number of rows differs from the stated one");
    require_page(out_.row_levels.empty() || out_.row_levels[0] == 0, "the first row has no start");
    out_.row_levels.push_back(static_cast<std::uint32_t>(levels_));
    out_.row_values.push_back(value);
  }

  const LeafRequest& request_;
  const ParquetLeaf& leaf_;
  LeafValues out_, dictionary_;
  std::uint64_t levels_ = 0;
};

}  // namespace

LeafValues read_leaf(const LeafRequest& request) {
  require_page(request.chunk.values <= std::numeric_limits<std::uint32_t>::max(), "more values than can be counted");
  return LeafReader(request).read();
}

}  // namespace qtrain
