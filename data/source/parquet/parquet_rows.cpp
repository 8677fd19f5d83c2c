#include "data/source/parquet/parquet_rows.h"

#include <algorithm>
#include <utility>

#include "core/formats/json_object.h"
#include "data/source/batched_rows.h"
#include "data/source/parquet/encodings.h"
#include "data/source/parquet/leaf.h"
#include "data/source/raw_rows.h"
#include "text/tokenizer/unicode.h"

namespace qtrain {
namespace {

/// Read position in a leaf.
struct LeafCursor {
  std::uint32_t level = 0, value = 0;
};

/// Assembles a row from the levels of its leaves.
class RecordAssembly {
 public:
  RecordAssembly(const ParquetFile& file, const std::vector<LeafValues>& leaves, GrowthLimit memory)
      : file_(file), leaves_(leaves), memory_(std::move(memory)), cursors_(leaves.size()) {}

  Json row(std::size_t row) {
    row_ = row;
    for (std::size_t i = 0; i < leaves_.size(); ++i)
      if (!leaves_[i].row_levels.empty()) cursors_[i] = {leaves_[i].row_levels[row], leaves_[i].row_values[row]};
    JsonObject out;
    for (const ParquetNode& column : file_.columns)
      if (column.is_read) out.add(column.name, value(column));
    for (std::size_t i = 0; i < leaves_.size(); ++i)
      require_page(leaves_[i].row_levels.empty() || at_row_end(i), "columns of one list differ in length");
    return out.take();
  }

 private:
  bool at_row_end(std::size_t leaf) const { return cursors_[leaf].level == leaves_[leaf].row_levels[row_ + 1]; }
  int definition(std::size_t leaf) const {
    require_page(!at_row_end(leaf), "columns of one list differ in length");
    const LeafValues& values = leaves_[leaf];
    return values.definition.empty() ? 0 : values.definition[cursors_[leaf].level];
  }

  Json value(const ParquetNode& node) {
    const int level = definition(node.leaf);
    if (node.kind == ParquetNode::Kind::leaf) return leaf_value(node, level);
    if (level < node.definition) {
      pass(node);
      return nullptr;
    }
    return node.kind == ParquetNode::Kind::group ? group(node) : list(node, level);
  }

  /// Skips the single entry that each leaf below has for an absent value.
  void pass(const ParquetNode& node) {
    if (!node.is_read) return;
    if (node.kind == ParquetNode::Kind::leaf) {
      definition(node.leaf);
      ++cursors_[node.leaf].level;
    }
    for (const ParquetNode& child : node.children) pass(child);
  }

  Json group(const ParquetNode& node) {
    JsonObject out;
    for (const ParquetNode& child : node.children)
      if (child.is_read) out.add(child.name, value(child));
    return out.take();
  }

  Json list(const ParquetNode& node, int level) {
    Json out = Json::array();
    if (level < node.item_definition) {
      pass(node);
      return out;
    }
    do out.push_back(value(node.children[0]));
    while (!at_row_end(node.leaf) && leaves_[node.leaf].repetition[cursors_[node.leaf].level] == node.repetition);
    return out;
  }

  Json leaf_value(const ParquetNode& node, int level) {
    LeafCursor& cursor = cursors_[node.leaf];
    ++cursor.level;
    if (level < node.definition) return nullptr;
    const LeafValues& values = leaves_[node.leaf];
    const std::uint32_t i = cursor.value++;
    switch (file_.leaves[node.leaf].kind) {
      case LeafKind::boolean: return values.integers[i] != 0;
      case LeafKind::integer: return values.integers[i];
      case LeafKind::unsigned_integer: return static_cast<std::uint64_t>(values.integers[i]);
      case LeafKind::real: return values.reals[i];
      default: break;
    }
    memory_.add(values.texts[i].size());
    require_page(is_utf8(values.texts[i]), "text is not UTF-8");
    if (file_.leaves[node.leaf].kind == LeafKind::json) return parse_json(values.texts[i], node.name);
    return std::string(values.texts[i]);
  }

  const ParquetFile& file_;
  const std::vector<LeafValues>& leaves_;
  GrowthLimit memory_;
  std::size_t row_ = 0;
  std::vector<LeafCursor> cursors_;
};

class ParquetBatch final : public RowBatch {
 public:
  struct Parts {
    const ParquetFile& file;
    std::vector<LeafValues> leaves;
    GrowthLimit row_limit;
    Size size;
  };
  explicit ParquetBatch(Parts parts)
      : RowBatch(parts.size),
        file_(parts.file),
        leaves_(std::move(parts.leaves)),
        row_limit_(std::move(parts.row_limit)) {}
  Json row(std::int64_t row) const override {
    return RecordAssembly(file_, leaves_, row_limit_).row(static_cast<std::size_t>(row));
  }

 private:
  const ParquetFile& file_;
  std::vector<LeafValues> leaves_;
  GrowthLimit row_limit_;
};

/// Parquet rows, one batch per row group.
class ParquetRows final : public BatchedRows {
 public:
  explicit ParquetRows(FileBytesPtr bytes)
      : BatchedRows({bytes->name(), bytes->text().size()}), bytes_(std::move(bytes)) {
    file_ = with_place(name(), [&] { return read_parquet_metadata(bytes_->text()); });
    for (const ParquetRowGroup& group : file_.groups) add_batch(group.rows, bytes_of(group));
  }

  std::string_view format() const override { return "parquet"; }
  std::string unread_columns() const override {
    std::string list;
    for (const ParquetNode& column : file_.columns)
      if (!column.is_read) list_column(list, column.name, column.type);
    return list;
  }

 protected:
  std::shared_ptr<const RowBatch> load(std::size_t batch) const override {
    const ParquetRowGroup& group = file_.groups[batch];
    std::vector<LeafValues> leaves(file_.leaves.size());
    GrowthLimit memory(stored_bytes(group), "Save it with smaller row groups: pyarrow's row_group_size=1000.");
    GrowthLimit repeated = repetition_limit();
    for (const ParquetNode& column : file_.columns) read_below(column, {group, memory, repeated}, leaves);
    return std::make_shared<ParquetBatch>(
        ParquetBatch::Parts{.file = file_,
                            .leaves = std::move(leaves),
                            .row_limit = row_limit(),
                            .size = {.memory = memory.made(), .repeated = repeated.made()}});
  }
  void release_batch(std::size_t batch) const override {
    for (const ParquetChunk& chunk : file_.groups[batch].chunks)
      bytes_->release(bytes_->text().substr(chunk.begin, chunk.size));
  }

 private:
  struct GroupReading {
    const ParquetRowGroup& group;
    GrowthLimit &memory, &repeated;
  };

  /// Column chunks may overlap in the file.
  std::uint64_t stored_bytes(const ParquetRowGroup& group) const {
    std::uint64_t stored = 0;
    for (const ParquetChunk& chunk : group.chunks) stored += chunk.size;
    return std::min<std::uint64_t>(stored, bytes_->text().size());
  }
  std::uint64_t bytes_of(const ParquetRowGroup& group) const {
    return std::max(stored_bytes(group), static_cast<std::uint64_t>(std::max<std::int64_t>(group.bytes, 0)));
  }

  void read_below(const ParquetNode& node, const GroupReading& in, std::vector<LeafValues>& leaves) const {
    if (!node.is_read) return;
    if (node.kind == ParquetNode::Kind::leaf)
      leaves[node.leaf] = with_place("column '" + node.name + "'", [&] {
        return read_leaf({.file = bytes_->text(),
                          .leaf = file_.leaves[node.leaf],
                          .chunk = in.group.chunks[node.leaf],
                          .rows = in.group.rows,
                          .memory = in.memory,
                          .repeated = in.repeated});
      });
    for (const ParquetNode& child : node.children) read_below(child, in, leaves);
  }

  FileBytesPtr bytes_;
  ParquetFile file_;
};

}  // namespace

RowSourcePtr open_parquet_rows(FileBytesPtr file) {
  return std::make_shared<ParquetRows>(std::move(file));
}

}  // namespace qtrain
