// Record batches: which bytes of a message's body belong to which column.
#include "data/source/arrow/batch.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/error.h"

namespace qtrain {
namespace {

/// Refuses batches that claim more values per byte than this. Columns of nulls take no bytes, and zstd shrinks others.
constexpr std::uint64_t kMaxRowsPerByte = 64;
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 40;  // maximum size of a decompressed buffer

void require_batch(bool fine, const char* why) {
  if (!fine) fail(ErrorKind::input, {.cause = std::string("damaged Arrow record batch: ") + why});
}

std::optional<Codec> codec_of(const FlatTable& header) {
  const auto compression = header.table(3);
  if (!compression) return std::nullopt;
  const auto codec = compression->scalar<std::int8_t>(0, 0);
  require_batch(codec == 0 || codec == 1, "its compression is neither LZ4 nor zstd");
  return codec == 0 ? Codec::lz4_frame : Codec::zstd;
}

class ColumnReader {
 public:
  explicit ColumnReader(const ArrowBatchReading& in)
      : body_(in.parts.body),
        nodes_(in.parts.header.vector(1, 16)),
        buffers_(in.parts.header.vector(2, 16)),
        block_counts_(in.parts.header.vector(4, 8)),
        codec_(codec_of(in.parts.header)),
        dictionaries_(in.dictionaries),
        memory_(in.memory),
        max_values_((in.parts.body.size() + 8) * kMaxRowsPerByte) {}

  ArrowColumn column(const ArrowField& field) {
    ArrowColumn out{.field = &field};
    out.length = nodes_.scalar<std::int64_t>(node_, 0);
    const auto nulls = nodes_.scalar<std::int64_t>(node_++, 8);
    require_batch(out.length >= 0 && static_cast<std::uint64_t>(out.length) <= max_values_,
                  "the length of a column is invalid");
    if (field.has_validity) out.validity = buffer();
    if (nulls == 0) out.validity = {};
    require_batch(nulls == 0 || !field.has_validity || out.validity.size() >= bytes_for(out.length, 1),
                  "the validity bitmap is too short");
    field.dictionary ? read_indices(out) : read_buffers(out);
    if (!field.dictionary)
      for (const ArrowField& child : field.children) out.children.push_back(column(child));
    require_children(out);
    return out;
  }

  std::vector<OwnedBytes> take_made() { return std::move(made_); }

 private:
  static std::uint64_t bytes_for(std::int64_t values, int bits) {
    return (static_cast<std::uint64_t>(values) * static_cast<std::uint64_t>(bits) + 7) / 8;
  }

  std::string_view buffer() {
    const auto offset = buffers_.scalar<std::int64_t>(buffer_, 0), size = buffers_.scalar<std::int64_t>(buffer_, 8);
    ++buffer_;
    const auto body = static_cast<std::int64_t>(body_.size());
    require_batch(offset >= 0 && size >= 0 && offset <= body && size <= body - offset,
                  "a buffer lies outside the message body");
    const std::string_view bytes = body_.substr(static_cast<std::size_t>(offset), static_cast<std::size_t>(size));
    return codec_ && !bytes.empty() ? decompressed(bytes) : bytes;
  }

  std::string_view decompressed(std::string_view bytes) {
    require_batch(bytes.size() >= 8, "a compressed buffer does not state its size");
    const auto size = number_at<std::int64_t>(bytes, 0);
    bytes.remove_prefix(8);
    if (size == -1) return bytes;  // the buffer is stored uncompressed
    require_batch(size >= 0, "a compressed buffer has a negative size");
    memory_.add(static_cast<std::uint64_t>(size));
    made_.push_back(decompress({.codec = *codec_, .bytes = bytes, .size = static_cast<std::uint64_t>(size)}));
    return made_.back().view();
  }

  void read_indices(ArrowColumn& out) {
    out.values = buffer();
    require_batch(out.values.size() >= bytes_for(out.length, out.field->index_bits), "indices are missing");
    const auto dictionary = dictionaries_.find(*out.field->dictionary);
    require_batch(dictionary != dictionaries_.end(), "its dictionary is missing");
    out.dictionary = dictionary->second;
  }

  void read_buffers(ArrowColumn& out) {
    const ArrowField& field = *out.field;
    switch (field.kind) {
      case ArrowKind::boolean: return read_values(out, 1);
      case ArrowKind::integer:
      case ArrowKind::real: return read_values(out, field.bits);
      case ArrowKind::text_view: read_values(out, 128); return read_blocks(out);
      case ArrowKind::text:
        read_offsets(out);
        out.values = buffer();
        return;
      case ArrowKind::list: return read_offsets(out);
      default:
        for (int i = 0; i < field.buffers; ++i) buffer();
        if (field.has_blocks) read_blocks(out);
    }
  }
  void read_values(ArrowColumn& out, int bits) {
    out.values = buffer();
    require_batch(out.values.size() >= bytes_for(out.length, bits), "values are missing");
  }
  void read_offsets(ArrowColumn& out) {
    out.offsets = buffer();
    require_batch(out.length == 0 || out.offsets.size() >= bytes_for(out.length + 1, out.field->bits),
                  "offsets are missing");
    out.field->bits == 32 ? require_order<std::int32_t>(out) : require_order<std::int64_t>(out);
  }
  // Values must not overlap, not even between nulls, so that together they are no larger than the batch.
  template <class Offset>
  static void require_order(const ArrowColumn& out) {
    Offset last = 0;
    for (std::int64_t i = 0; i <= out.length && out.length > 0; ++i) {
      const auto next = number_at<Offset>(out.offsets, static_cast<std::uint64_t>(i) * sizeof(Offset));
      require_batch(next >= last, "its offsets decrease");
      last = next;
    }
  }
  void read_blocks(ArrowColumn& out) {
    const auto count = block_counts_.scalar<std::int64_t>(block_count_++);
    require_batch(count >= 0 && static_cast<std::uint64_t>(count) <= buffers_.size(),
                  "the number of blocks is invalid");
    for (std::int64_t i = 0; i < count; ++i) out.blocks.push_back(buffer());
  }

  static void require_children(const ArrowColumn& out) {
    if (out.field->dictionary) return;
    if (out.field->kind == ArrowKind::structure)
      for (const ArrowColumn& child : out.children) require_batch(child.length >= out.length, "a member is too short");
    if (out.field->kind == ArrowKind::fixed_list && out.field->list_size > 0)
      require_batch(out.children[0].length / out.field->list_size >= out.length, "lists are too short");
  }

  std::string_view body_;
  FlatTable::Vector nodes_, buffers_, block_counts_;
  std::optional<Codec> codec_;
  const ArrowDictionaries& dictionaries_;
  GrowthLimit& memory_;
  std::uint64_t max_values_;
  std::uint64_t node_ = 0, buffer_ = 0, block_count_ = 0;
  std::vector<OwnedBytes> made_;
};

}  // namespace

std::int64_t arrow_batch_rows(const ArrowBatchParts& parts) {
  const auto rows = parts.header.scalar<std::int64_t>(0, 0);
  require_batch(rows >= 0, "it states a negative number of rows");
  require_batch(static_cast<std::uint64_t>(rows) <= (parts.body.size() + 8) * kMaxRowsPerByte,
                "it states more rows than its bytes can hold");
  return rows;
}

std::uint64_t arrow_batch_bytes(const ArrowBatchParts& parts) {
  if (!codec_of(parts.header)) return parts.body.size();
  const FlatTable::Vector buffers = parts.header.vector(2, 16);
  std::uint64_t bytes = parts.body.size();
  for (std::uint64_t i = 0; i < buffers.size(); ++i) {
    const auto at = buffers.scalar<std::uint64_t>(i, 0), size = buffers.scalar<std::uint64_t>(i, 8);
    if (size < 8 || parts.body.size() < 8 || at > parts.body.size() - 8) continue;  // empty, or refused when decoded
    const auto made = number_at<std::int64_t>(parts.body, at);
    bytes += static_cast<std::uint64_t>(std::clamp<std::int64_t>(made, 0, kMaxBytes));
  }
  return bytes;
}

ArrowColumns read_arrow_columns(const ArrowBatchReading& in) {
  ArrowColumns out{.rows = arrow_batch_rows(in.parts)};
  ColumnReader reader(in);
  for (const ArrowField& field : in.fields) {
    out.columns.push_back(reader.column(field));
    require_batch(out.columns.back().length >= out.rows, "a column is shorter than the batch");
  }
  out.made = reader.take_made();
  return out;
}

}  // namespace qtrain
