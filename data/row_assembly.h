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

/// Encoded rows as far as they are needed for packing: cut to max_length where what exceeds it is lost anyway.
class Documents {
 public:
  explicit Documents(const SpoolOptions& spools) : tokens_(spools) {}

  std::int64_t size() const { return static_cast<std::int64_t>(lengths_.size()); }
  std::span<const std::int32_t> lengths() const { return lengths_; }
  /// Its document_starts are those behind the first. Ends appending until `clear`.
  RowView view(std::int64_t i);
  /// A part of a row, whose `document` does not matter.
  void append(const RowView& row, DocumentSlice kept);
  /// Gives back the memory behind documents that have been read.
  void release() const { tokens_.release(); }
  void clear();

 private:
  NumberSpool<std::int32_t> tokens_;  // of each document its input_ids, then its labels
  std::vector<std::int32_t> lengths_;
  std::vector<std::int64_t> offsets_;                         // of each document, in tokens
  std::map<std::int64_t, std::vector<std::int32_t>> starts_;  // of rows that have several documents themselves
};

/// Makes training rows of encoded ones: truncation, dropping, packing, shuffling. A batch of rows is packed as soon as
/// it is there, unless the options need all rows at once.
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
  std::optional<std::int32_t> block_start_;  // in the place of the first token of each block
  std::int64_t batch_;                       // rows that are made into training rows together; 0: all
  std::int64_t unreleased_ = 0;
  std::vector<std::int32_t> ids_, labels_, starts_;  // of the row being written
};

}  // namespace qtrain
