#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/os/spool.h"
#include "data/dataset.h"
#include "data/parallel_encode.h"

namespace qtrain {

/// Encoded rows waiting to be packed, truncated to max_length where the excess would be lost anyway.
class Documents {
 public:
  explicit Documents(const SpoolOptions& spools) : tokens_(spools) {}

  std::int64_t size() const { return static_cast<std::int64_t>(lengths_.size()); }
  std::span<const std::int32_t> lengths() const { return lengths_; }
  /// document_starts of the view excludes the first. Do not append after this until `clear`.
  RowView view(std::int64_t i);
  /// Appends a part of a row; `kept.document` is ignored.
  void append(const RowView& row, DocumentSlice kept);
  /// Releases the memory of documents that have been read.
  void release() const { tokens_.release(); }
  void clear();

 private:
  NumberSpool<std::int32_t> tokens_;  // for each document its input_ids, then its labels
  std::vector<std::int32_t> lengths_;
  std::vector<std::int64_t> offsets_;                         // in tokens
  std::map<std::int64_t, std::vector<std::int32_t>> starts_;  // of rows that contain several documents
};

/// Turns encoded rows into training rows: truncation, dropping, packing, shuffling. Packs each batch of rows as soon as
/// it is complete, unless the options need all rows at once.
class RowAssembly {
 public:
  RowAssembly(const DatasetSource& source, DatasetBuilder& into);
  void add(const EncodedBlock& block);
  void finish();

 private:
  void count_end(std::int32_t token, std::int64_t rows);
  void leave_out(std::int64_t row, const EncodedBlock::LeftOut& why);
  void count(LeftOutRows& rows, std::int64_t row, const std::string& reason) const;
  void add_row(std::int64_t row, const RowView& view, const EncodedBlock::Remark& about);
  void add_long(std::int64_t row, const RowView& view, const EncodedBlock::Remark& about);
  void add_part(const RowView& view, const DocumentSlice& part);
  void cut(std::int64_t row, std::int64_t length, std::int64_t kept);
  void flush();
  PackedRows single_rows();
  PackedRows packed_rows();
  PackedRows all_packed();
  void write(std::span<const DocumentSlice> row);
  void add_slice(const DocumentSlice& slice);

  const RawRows& rows_;
  const DatasetOptions& options_;
  DatasetBuilder& into_;
  Documents documents_;
  bool packs_, cuts_, borders_;
  std::optional<std::int32_t> block_start_;  // replaces the first token of each block
  std::int64_t batch_;                       // number of rows processed together; 0: all
  std::int64_t unreleased_ = 0;
  std::vector<std::int32_t> ids_, labels_, starts_;  // the row being written
};

}  // namespace qtrain
