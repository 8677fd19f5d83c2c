#include "data/source/parquet/metadata.h"

#include <cstring>

#include "core/error.h"
#include "data/source/parquet/schema.h"
#include "data/source/parquet/thrift.h"

namespace qtrain {
namespace {

using FooterField = ThriftReader::Field;

void require_footer(bool fine, const char* why) {
  if (!fine)
    fail(ErrorKind::input, {.cause = std::string("damaged Parquet file: ") + why,
                            .remedy = "Save it again; a copy may have been truncated."});
}

void read_logical_type(ThriftReader& in, SchemaElement& out) {
  in.read_struct([&](const FooterField& field) {
    out.logical = field.id;
    constexpr int kIntegerMember = 10;
    if (field.id != kIntegerMember || field.type != ThriftReader::structure) return in.skip(field.type);
    in.read_struct([&](const FooterField& f) {
      if (f.id == 1)
        out.bits = static_cast<int>(in.integer(f));
      else if (f.id == 2)
        out.is_signed = in.boolean(f);
      else
        in.skip(f.type);
    });
  });
}

SchemaElement read_element(ThriftReader& in) {
  SchemaElement out;
  in.read_struct([&](const FooterField& f) {
    switch (f.id) {
      case 1: out.type = in.integer(f); break;
      case 3: out.repetition = in.integer(f); break;
      case 4: out.name = in.text(f); break;
      case 5: out.children = in.integer(f), out.has_children = true; break;
      case 6: out.converted = in.integer(f); break;
      case 10:
        if (f.type == ThriftReader::structure) return read_logical_type(in, out);
        [[fallthrough]];
      default: in.skip(f.type);
    }
  });
  return out;
}

void set_codec(ParquetChunk& chunk, std::int64_t number) {
  struct Known {
    std::int64_t number;
    Codec codec;
  };
  constexpr Known kKnown[] = {
      {0, Codec::none}, {1, Codec::snappy}, {2, Codec::gzip}, {6, Codec::zstd}, {7, Codec::lz4_block}};
  chunk.codec_number = number;
  for (const Known& known : kKnown)
    if (known.number == number) chunk.has_codec = true, chunk.codec = known.codec;
}

struct Offsets {
  std::int64_t data = 0, dictionary = 0, size = 0;
};

void read_column_metadata(ThriftReader& in, ParquetChunk& chunk, Offsets& offsets) {
  in.read_struct([&](const FooterField& f) {
    switch (f.id) {
      case 4: set_codec(chunk, in.integer(f)); break;
      case 5: chunk.values = in.integer(f); break;
      case 7: offsets.size = in.integer(f); break;
      case 9: offsets.data = in.integer(f); break;
      case 11: offsets.dictionary = in.integer(f); break;
      default: in.skip(f.type);
    }
  });
}

ParquetChunk read_chunk(ThriftReader& in, std::uint64_t file_size) {
  ParquetChunk chunk;
  Offsets offsets;
  bool has_metadata = false;
  in.read_struct([&](const FooterField& f) {
    require_footer(f.id != 1, "it stores columns in other files, which is not supported");
    has_metadata = has_metadata || f.id == 3;
    f.id == 3 ? read_column_metadata(in, chunk, offsets) : in.skip(f.type);
  });
  require_footer(has_metadata, "a column has no metadata; it may be encrypted");
  const bool dictionary_first = offsets.dictionary > 0 && offsets.dictionary < offsets.data;
  if (chunk.values == 0) return chunk;  // writers may omit the offset of a column without values
  const std::int64_t begin = dictionary_first ? offsets.dictionary : offsets.data;
  require_footer(begin >= 4 && offsets.size >= 0 && static_cast<std::uint64_t>(begin) <= file_size &&
                     static_cast<std::uint64_t>(offsets.size) <= file_size - static_cast<std::uint64_t>(begin),
                 "a column lies outside the file");
  chunk.begin = static_cast<std::uint64_t>(begin);
  chunk.size = static_cast<std::uint64_t>(offsets.size);
  return chunk;
}

ParquetRowGroup read_group(ThriftReader& in, std::uint64_t file_size) {
  ParquetRowGroup group;
  in.read_struct([&](const FooterField& f) {
    if (f.id == 1)
      in.read_list(f, [&](ThriftReader::Type) { group.chunks.push_back(read_chunk(in, file_size)); });
    else if (f.id == 2)
      group.bytes = in.integer(f);
    else if (f.id == 3)
      group.rows = in.integer(f);
    else
      in.skip(f.type);
  });
  return group;
}

void check_groups(const ParquetFile& file, std::uint64_t file_size) {
  std::uint64_t rows = 0;
  for (const ParquetRowGroup& group : file.groups) {
    require_footer(group.chunks.size() == file.leaves.size(), "a row group does not have the columns of the schema");
    require_footer(group.rows >= 0 && group.rows <= std::int64_t{1} << 40, "a row group has an invalid number of rows");
    rows += static_cast<std::uint64_t>(group.rows);
    require_footer(rows <= max_parquet_values(file_size), "it states more rows than its bytes can hold");
    for (std::size_t i = 0; i < file.leaves.size(); ++i) {
      const std::int64_t values = group.chunks[i].values;
      require_footer(values >= group.rows && static_cast<std::uint64_t>(values) <= max_parquet_values(file_size) &&
                         (values == group.rows || file.leaves[i].max_repetition > 0),
                     "a column does not have as many values as rows");
    }
  }
}

}  // namespace

ParquetFile read_parquet_metadata(std::string_view file) {
  require_footer(file.size() >= 12, "it is too short");
  const std::string_view tail = file.substr(file.size() - 8);
  require_footer(!tail.ends_with("PARE"), "it is encrypted");
  require_footer(tail.ends_with("PAR1"), "its last bytes are wrong");
  std::uint32_t size = 0;
  std::memcpy(&size, tail.data(), 4);
  require_footer(size <= file.size() - 12, "its footer is longer than the file");
  ThriftReader in(file.substr(file.size() - 8 - size, size));
  ParquetFile out;
  std::vector<SchemaElement> schema;
  in.read_struct([&](const FooterField& f) {
    if (f.id == 2)
      in.read_list(f, [&](ThriftReader::Type) { schema.push_back(read_element(in)); });
    else if (f.id == 4)
      in.read_list(f, [&](ThriftReader::Type) { out.groups.push_back(read_group(in, file.size())); });
    else
      in.skip(f.type);
  });
  build_parquet_schema(schema, out);
  check_groups(out, file.size());
  return out;
}

}  // namespace qtrain
