// Arrow IPC: streams, as `datasets` writes them, and files.
#include "data/source/arrow/arrow_rows.h"

#include <utility>

#include "core/formats/json_object.h"
#include "data/source/arrow/batch.h"
#include "data/source/arrow/messages.h"
#include "data/source/batched_rows.h"
#include "data/source/raw_rows.h"

namespace qtrain {
namespace {

constexpr const char* kSmallerBatches = "Write it again in smaller record batches, or without compression.";

class ArrowRowBatch final : public RowBatch {
 public:
  ArrowRowBatch(ArrowColumns columns, Size size, GrowthLimit row_limit)
      : RowBatch(size), columns_(std::move(columns)), row_limit_(std::move(row_limit)) {}

  Json row(std::int64_t row) const override {
    JsonObject out;
    GrowthLimit memory = row_limit_;
    const bool shares = shared_bytes() > 0;
    for (const ArrowColumn& column : columns_.columns) {
      if (shares && column.field->kind != ArrowKind::unread) memory.add(value_size(column, row));
      if (column.field->kind != ArrowKind::unread) out.add(column.field->name, arrow_value(column, row));
    }
    return out.take();
  }

 private:
  ArrowColumns columns_;
  GrowthLimit row_limit_;
};

class ArrowRows final : public BatchedRows {
 public:
  explicit ArrowRows(FileBytesPtr file)
      : BatchedRows({file->name(), file->text().size()}),
        file_(std::move(file)),
        dictionary_memory_(file_->text().size(), kSmallerBatches) {
    with_place(name(), [&] { return read_messages(); });
  }

  std::string_view format() const override { return "arrow"; }
  std::string unread_columns() const override {
    std::string list;
    for (const ArrowField& field : fields_)
      if (field.kind == ArrowKind::unread) list_column(list, field.name, field.type);
    return list;
  }

 protected:
  std::shared_ptr<const RowBatch> load(std::size_t batch) const override {
    const Batch& at = batches_[batch];
    GrowthLimit memory(at.parts.body.size(), kSmallerBatches);
    ArrowColumns columns = read_arrow_columns({fields_, at.parts, *at.dictionaries, memory});
    GrowthLimit repeated = repetition_limit();
    for (const ArrowColumn& column : columns.columns) repeated.add(repeated_bytes(column));
    const RowBatch::Size size{.memory = memory.made(), .repeated = repeated.made()};
    return std::make_shared<ArrowRowBatch>(std::move(columns), size, row_limit());
  }
  void release_batch(std::size_t batch) const override { file_->release(batches_[batch].parts.body); }

 private:
  struct Batch {
    ArrowBatchParts parts;
    std::shared_ptr<const ArrowDictionaries> dictionaries;  // the dictionaries at the time when the batch was written
  };

  bool read_messages() {
    const ArrowMessages messages = read_arrow_messages(file_->text());
    in_file_format_ = messages.has_footer;
    fields_ = read_arrow_schema(messages.schema);
    std::vector<const ArrowField*> encoded;
    dictionaries_of(fields_, encoded);
    for (const ArrowField* field : encoded) dictionary_fields_[*field->dictionary] = {field->of_values()};
    for (const ArrowMessage& message : messages.rest) {
      const ArrowBatchParts parts{message.header, message.body};
      if (message.kind == kDictionaryMessage) read_dictionary(parts);
      if (message.kind != kBatchMessage) continue;
      add_batch(arrow_batch_rows(parts), arrow_batch_bytes(parts));
      batches_.push_back({parts, dictionaries_});
    }
    return true;
  }

  void read_dictionary(const ArrowBatchParts& message) {
    const auto id = message.header.scalar<std::int64_t>(0, 0);
    const auto data = message.header.table(1);
    const auto field = dictionary_fields_.find(id);
    require_arrow(data && field != dictionary_fields_.end(), "it has a dictionary that no column uses");
    const bool adds = message.header.scalar<std::uint8_t>(2, 0) != 0, is_there = dictionaries_->contains(id);
    require_arrow(is_there || !adds, "it extends a dictionary that it does not have");
    require_arrow(!is_there || adds || !in_file_format_, "it contains a dictionary twice");
    auto read = std::make_shared<ArrowColumns>(
        read_arrow_columns({field->second, {*data, message.body}, *dictionaries_, dictionary_memory_}));
    if (dictionaries_.use_count() > 1)  // a batch still refers to the current ones
      dictionaries_ = std::make_shared<ArrowDictionaries>(*dictionaries_);
    ArrowDictionary& dictionary = (*dictionaries_)[id];
    if (!adds) dictionary = {.parts = std::make_shared<ArrowDictionary::Parts>()};
    dictionary.parts->add({read, &read->columns[0]});
    dictionary.length = dictionary.parts->ends.back();
  }

  FileBytesPtr file_;
  std::vector<ArrowField> fields_;
  std::map<std::int64_t, std::vector<ArrowField>> dictionary_fields_;  // one field per dictionary, as in the schema
  std::shared_ptr<ArrowDictionaries> dictionaries_ = std::make_shared<ArrowDictionaries>();
  GrowthLimit dictionary_memory_;  // they stay
  std::vector<Batch> batches_;
  bool in_file_format_ = false;  // whether the dictionaries apply to all batches
};

}  // namespace

RowSourcePtr open_arrow_rows(FileBytesPtr file) {
  return std::make_shared<ArrowRows>(std::move(file));
}

}  // namespace qtrain
