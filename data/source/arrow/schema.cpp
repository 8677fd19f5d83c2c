#include "data/source/arrow/schema.h"

#include <array>
#include <utility>

#include "core/error.h"
#include "text/tokenizer/unicode.h"

namespace qtrain {
namespace {

constexpr int kMaxNesting = 32;
// Limits that keep a damaged file from using one field, name or piece of metadata over and over.
constexpr std::uint64_t kMaxFields = 10'000;
constexpr std::size_t kLongestName = 1 << 16, kMaxNameBytes = 1 << 22;

/// A type of the format; its index in kTypes is its number in the union `Type`.
struct ArrowType {
  const char* name;
  ArrowKind kind = ArrowKind::unread;
  int buffers = 1;
  int bits = 0;
  bool has_validity = true;
  bool has_blocks = false;
};
constexpr std::array<ArrowType, 27> kTypes = {{
    {"none"},
    {"null", ArrowKind::null, 0, 0, false},
    {"int", ArrowKind::integer},
    {"float", ArrowKind::real},
    {"binary", ArrowKind::unread, 2},
    {"string", ArrowKind::text, 2, 32},
    {"bool", ArrowKind::boolean},
    {"decimal"},
    {"date"},
    {"time"},
    {"timestamp"},
    {"interval"},
    {"list", ArrowKind::list, 1, 32},
    {"struct", ArrowKind::structure, 0},
    {"union", ArrowKind::unread, 1, 0, false},  // a dense union also has offsets
    {"fixed_size_binary"},
    {"fixed_size_list", ArrowKind::fixed_list, 0},
    {"map", ArrowKind::unread, 1},
    {"duration"},
    {"large_binary", ArrowKind::unread, 2},
    {"large_string", ArrowKind::text, 2, 64},
    {"large_list", ArrowKind::list, 1, 64},
    {"run_end_encoded", ArrowKind::unread, 0, 0, false},
    {"binary_view", ArrowKind::unread, 1, 0, true, true},
    {"string_view", ArrowKind::text_view, 1, 0, true, true},
    {"list_view", ArrowKind::unread, 2},
    {"large_list_view", ArrowKind::unread, 2},
}};

void require_schema(bool fine, const char* why) {
  if (!fine) fail(ErrorKind::input, {.cause = std::string("damaged Arrow schema: ") + why});
}

bool is_bits(int bits) {
  return bits == 8 || bits == 16 || bits == 32 || bits == 64;
}

class SchemaReader {
 public:
  std::vector<ArrowField> fields(const FlatTable::Vector& tables, int depth) {
    require_schema(depth < kMaxNesting, "nested too deeply");
    std::vector<ArrowField> out;
    for (std::uint64_t i = 0; i < tables.size(); ++i) {
      count(1);
      out.push_back(field(tables.table(i), depth));
    }
    return out;
  }

 private:
  void count(std::uint64_t parts) {
    require_schema(parts <= kMaxFields - count_, "too many fields");
    count_ += parts;
  }

  std::string name_of(const FlatTable& table) {
    const std::string_view name = table.text(0);
    name_bytes_ += name.size();
    require_schema(name.size() <= kLongestName && name_bytes_ <= kMaxNameBytes, "names are too long");
    require_schema(is_utf8(name), "a name is not UTF-8");
    return std::string(name);
  }

  ArrowField field(const FlatTable& table, int depth) {
    ArrowField out{.name = name_of(table)};
    const auto type = table.scalar<std::uint8_t>(2, 0);
    require_schema(type > 0 && type < kTypes.size(), "a column has an unknown type");
    const ArrowType& known = kTypes[type];
    out.type = known.name;
    out.kind = known.kind;
    out.bits = known.bits;
    out.buffers = known.buffers;
    out.has_validity = known.has_validity;
    out.has_blocks = known.has_blocks;
    out.children = fields(table.vector(5, 4), depth + 1);
    if (const auto details = table.table(3)) read_details(out, *details);
    if (const auto dictionary = table.table(4)) read_dictionary(out, *dictionary);
    read_extension(out, table.vector(6, 4));
    require_layout(out);
    return out;
  }

  static void read_details(ArrowField& out, const FlatTable& details) {
    if (out.kind == ArrowKind::integer) {
      out.bits = details.scalar<std::int32_t>(0, 0);
      out.is_signed = details.scalar<std::uint8_t>(1, 0) != 0;
      out.type = (out.is_signed ? "int" : "uint") + std::to_string(out.bits);
    } else if (out.kind == ArrowKind::real) {
      const auto precision = details.scalar<std::int16_t>(0, 0);
      require_schema(precision >= 0 && precision <= 2, "a float has an unknown precision");
      out.bits = 16 << precision;
      out.type = "float" + std::to_string(out.bits);
    } else if (out.kind == ArrowKind::fixed_list) {
      out.list_size = details.scalar<std::int32_t>(0, 0);
    } else if (out.type == "union" && details.scalar<std::int16_t>(0, 0) == 1) {
      out.buffers = 2;
    }
  }

  static void read_dictionary(ArrowField& out, const FlatTable& dictionary) {
    out.dictionary = dictionary.scalar<std::int64_t>(0, 0);
    out.index_bits = 32, out.index_signed = true;
    if (const auto index = dictionary.table(1)) {
      out.index_bits = index->scalar<std::int32_t>(0, 0);
      out.index_signed = index->scalar<std::uint8_t>(1, 0) != 0;
    }
    require_schema(is_bits(out.index_bits), "dictionary indices have an unknown width");
  }

  void read_extension(ArrowField& out, const FlatTable::Vector& metadata) {
    count(metadata.size());
    for (std::uint64_t i = 0; i < metadata.size(); ++i)
      if (const FlatTable pair = metadata.table(i); pair.text(0) == "ARROW:extension:name")
        out.is_json = pair.text(1) == "arrow.json";
  }

  static void require_layout(ArrowField& out) {
    const std::size_t n = out.children.size();
    switch (out.kind) {
      case ArrowKind::integer: require_schema(is_bits(out.bits), "integers have an unknown width"); break;
      case ArrowKind::real: require_schema(out.bits > 0, "a float has an unknown precision"); break;
      case ArrowKind::fixed_list: require_schema(out.list_size >= 0, "a list has a negative size"); [[fallthrough]];
      case ArrowKind::list:
        require_schema(n == 1, "a list does not have exactly one item type");
        out.type += "<" + out.children[0].type + ">";
        break;
      case ArrowKind::structure:
        out.type += "<";
        for (std::size_t i = 0; i < n; ++i)
          out.type += (i == 0 ? "" : ", ") + out.children[i].name + ": " + out.children[i].type;
        out.type += ">";
        break;
      default: break;
    }
  }

  std::uint64_t count_ = 0;  // fields and their pieces of metadata
  std::size_t name_bytes_ = 0;
};

}  // namespace

ArrowField ArrowField::of_values() const {
  ArrowField values = *this;
  values.dictionary.reset();
  return values;
}

std::vector<ArrowField> read_arrow_schema(const FlatTable& schema) {
  require_schema(schema.scalar<std::int16_t>(0, 0) == 0, "big-endian data is not supported");
  std::vector<ArrowField> fields = SchemaReader().fields(schema.vector(1, 4), 0);
  require_schema(!fields.empty(), "it has no columns");
  return fields;
}

void dictionaries_of(const std::vector<ArrowField>& fields, std::vector<const ArrowField*>& out) {
  for (const ArrowField& field : fields) {
    if (field.dictionary) out.push_back(&field);
    dictionaries_of(field.children, out);
  }
}

}  // namespace qtrain
