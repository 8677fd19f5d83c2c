#include "data/source/parquet/schema.h"

#include <utility>

#include "core/error.h"
#include "text/tokenizer/unicode.h"

namespace qtrain {
namespace {

constexpr int kMaxParquetNesting = 32;
enum Converted : std::int64_t {
  kConvertedUtf8 = 0,
  kConvertedMap = 1,
  kConvertedList = 3,
  kConvertedEnum = 4,
  kFirstUnsigned = 11,
  kFirstSigned = 15,
  kLastSigned = 18,
  kConvertedJson = 19
};
enum Logical : int {
  kLogicalString = 1,
  kLogicalMap = 2,
  kLogicalList = 3,
  kLogicalEnum = 4,
  kLogicalInteger = 10,
  kLogicalNull = 11,
  kLogicalJson = 12
};
constexpr std::int64_t kRepeated = 2, kOptional = 1;

void require_parquet_schema(bool fine, const char* why) {
  if (!fine) fail(ErrorKind::input, {.cause = std::string("damaged Parquet schema: ") + why});
}

bool is_unsigned(const SchemaElement& e) {
  return (e.converted >= kFirstUnsigned && e.converted < kFirstSigned) ||
         (e.logical == kLogicalInteger && !e.is_signed);
}

LeafKind kind_of_integer(const SchemaElement& e) {
  const bool plain = e.converted < 0 || (e.converted >= kFirstUnsigned && e.converted <= kLastSigned);
  const bool integer = e.logical == 0 || e.logical == kLogicalInteger || e.logical == kLogicalNull;
  if (!plain || !integer) return LeafKind::unread;  // decimals, dates, times
  return is_unsigned(e) ? LeafKind::unsigned_integer : LeafKind::integer;
}

LeafKind kind_of_leaf(const SchemaElement& e) {
  switch (static_cast<ParquetType>(e.type)) {
    case ParquetType::boolean: return LeafKind::boolean;
    case ParquetType::int32:
    case ParquetType::int64: return kind_of_integer(e);
    case ParquetType::real32:
    case ParquetType::real64: return LeafKind::real;
    case ParquetType::bytes:
      if (e.converted == kConvertedJson || e.logical == kLogicalJson) return LeafKind::json;
      if (e.converted == kConvertedUtf8 || e.converted == kConvertedEnum || e.logical == kLogicalString ||
          e.logical == kLogicalEnum)
        return LeafKind::text;
      return LeafKind::unread;
    default: return LeafKind::unread;
  }
}

constexpr const char* kLeafNames[] = {"bool", "int", "uint", "float", "string", "json", "time or decimal"};

const char* name_of_leaf(const SchemaElement& e, LeafKind kind) {
  const bool bytes = static_cast<ParquetType>(e.type) == ParquetType::bytes;
  const bool plain = e.converted < 0 && e.logical == 0;
  return kind == LeafKind::unread && bytes && plain ? "binary" : kLeafNames[static_cast<std::size_t>(kind)];
}

/// Levels and nesting depth of a value's ancestors.
struct Around {
  int definition = 0, repetition = 0, depth = 0;
};

class SchemaBuilder {
 public:
  SchemaBuilder(const std::vector<SchemaElement>& elements, ParquetFile& file) : elements_(elements), file_(file) {}

  void build() {
    const SchemaElement& root = next();
    for (std::int64_t i = 0; i < root.children; ++i) file_.columns.push_back(node({}));
    require_parquet_schema(at_ == elements_.size() && !file_.columns.empty(),
                           "it has no columns, or more than it states");
  }

 private:
  const SchemaElement& next() {
    require_parquet_schema(at_ < elements_.size(), "it ends too early");
    return elements_[at_++];
  }

  ParquetNode node(Around around) {
    require_parquet_schema(++around.depth <= kMaxParquetNesting, "nested too deeply");
    const SchemaElement& e = next();
    if (e.repetition == kRepeated) {  // a list without an enclosing LIST
      ParquetNode list = list_of(around);
      ++around.definition, ++around.repetition;
      return with_item(std::move(list), contents(e, around), e);
    }
    around.definition += e.repetition == kOptional;
    return contents(e, around);
  }

  /// A value whose own presence is already counted in `around`.
  ParquetNode contents(const SchemaElement& e, Around around) {
    require_parquet_schema(is_utf8(e.name), "a name is not UTF-8");
    if (!e.has_children) return leaf(e, around);
    const bool list = e.converted == kConvertedList || e.logical == kLogicalList;
    if (list && e.children == 1 && at_ < elements_.size() && elements_[at_].repetition == kRepeated)
      return annotated_list(e, around);
    return group(e, around);
  }

  ParquetNode leaf(const SchemaElement& e, const Around& around) {
    require_parquet_schema(e.type >= 0 && e.type <= 7, "an unknown type");
    const LeafKind kind = kind_of_leaf(e);
    ParquetNode out{.name = std::string(e.name),
                    .type = name_of_leaf(e, kind),
                    .definition = around.definition,
                    .leaf = file_.leaves.size(),
                    .is_read = kind != LeafKind::unread};
    file_.leaves.push_back({.type = static_cast<ParquetType>(e.type),
                            .kind = kind,
                            .bits = static_cast<ParquetType>(e.type) == ParquetType::int32 ? 32 : 64,
                            .max_definition = around.definition,
                            .max_repetition = around.repetition});
    return out;
  }

  ParquetNode group(const SchemaElement& e, Around around) {
    ParquetNode out{.name = std::string(e.name),
                    .kind = ParquetNode::Kind::group,
                    .definition = around.definition,
                    .is_read = false};
    out.type = "struct<";
    for (std::int64_t i = 0; i < e.children; ++i) {
      out.children.push_back(node(around));
      const ParquetNode& child = out.children.back();
      if (child.is_read && !out.is_read) out.is_read = true, out.leaf = child.leaf;
      out.type += (i == 0 ? "" : ", ") + child.name + ": " + child.type;
    }
    out.type += ">";
    const bool map = e.converted == kConvertedMap || e.logical == kLogicalMap;
    if (map || out.children.empty()) out.is_read = false, out.type = map ? "map" : out.type;
    return out;
  }

  ParquetNode list_of(const Around& around) {
    return {.kind = ParquetNode::Kind::list,
            .definition = around.definition,
            .item_definition = around.definition + 1,
            .repetition = around.repetition + 1};
  }

  /// LIST { repeated group { item } }, or in older files LIST { repeated item }.
  ParquetNode annotated_list(const SchemaElement& e, Around around) {
    ParquetNode list = list_of(around);
    ++around.definition, ++around.repetition, ++around.depth;
    const SchemaElement& repeated = next();
    const bool item_alone = repeated.has_children && repeated.children == 1 && repeated.name != "array" &&
                            repeated.name != std::string(e.name) + "_tuple" && at_ < elements_.size() &&
                            elements_[at_].repetition != kRepeated;
    return with_item(std::move(list), item_alone ? node(around) : contents(repeated, around), e);
  }

  static ParquetNode with_item(ParquetNode list, ParquetNode item, const SchemaElement& named) {
    list.name = named.name;
    list.type = "list<" + item.type + ">";
    list.leaf = item.leaf;
    list.is_read = item.is_read;
    list.children.push_back(std::move(item));
    return list;
  }

  const std::vector<SchemaElement>& elements_;
  ParquetFile& file_;
  std::size_t at_ = 0;
};

}  // namespace

void build_parquet_schema(const std::vector<SchemaElement>& elements, ParquetFile& file) {
  SchemaBuilder(elements, file).build();
}

}  // namespace qtrain
