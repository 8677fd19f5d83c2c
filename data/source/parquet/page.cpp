#include "data/source/parquet/page.h"

#include "data/source/parquet/encodings.h"
#include "data/source/parquet/thrift.h"

namespace qtrain {
namespace {

using PageField = ThriftReader::Field;

std::uint64_t count_in(ThriftReader& in, const PageField& field) {
  const std::int64_t n = in.integer(field);
  require_page(n >= 0 && n <= std::int64_t{1} << 31, "a size in its header is invalid");
  return static_cast<std::uint64_t>(n);
}

void read_data_header(ThriftReader& in, ParquetPage& page) {
  constexpr std::int64_t kBitPacked = 4;
  in.read_struct([&](const PageField& f) {
    switch (f.id) {
      case 1: page.values = count_in(in, f); break;
      case 2: page.encoding = in.integer(f); break;
      case 3:
      case 4:
        require_page(in.integer(f) != kBitPacked,
                     "its levels have an encoding from before 2014, which is not supported");
        break;
      default: in.skip(f.type);
    }
  });
}

void read_dictionary_header(ThriftReader& in, ParquetPage& page) {
  in.read_struct([&](const PageField& f) { f.id == 1 ? void(page.values = count_in(in, f)) : in.skip(f.type); });
}

void read_data_header_v2(ThriftReader& in, ParquetPage& page) {
  in.read_struct([&](const PageField& f) {
    switch (f.id) {
      case 1: page.values = count_in(in, f); break;
      case 4: page.encoding = in.integer(f); break;
      case 5: page.definition_size = count_in(in, f); break;
      case 6: page.repetition_size = count_in(in, f); break;
      case 7: page.is_compressed = in.boolean(f); break;
      default: in.skip(f.type);
    }
  });
}

}  // namespace

ParquetPage ParquetPages::next() {
  require_page(!left_.empty(), "pages are missing");
  ThriftReader in(left_);
  ParquetPage page;
  std::uint64_t stored = 0;
  in.read_struct([&](const PageField& f) {
    constexpr ParquetPage::Kind kKinds[] = {ParquetPage::Kind::data, ParquetPage::Kind::other,
                                            ParquetPage::Kind::dictionary, ParquetPage::Kind::data_v2};
    switch (f.id) {
      case 1: {
        const std::uint64_t kind = count_in(in, f);
        page.kind = kind < 4 ? kKinds[kind] : ParquetPage::Kind::other;
        break;
      }
      case 2: page.size = count_in(in, f); break;
      case 3: stored = count_in(in, f); break;
      case 5: return read_data_header(in, page);
      case 7: return read_dictionary_header(in, page);
      case 8: return read_data_header_v2(in, page);
      default: in.skip(f.type);
    }
  });
  left_.remove_prefix(in.position());
  page.bytes = take_bytes(left_, stored);
  return page;
}

}  // namespace qtrain
