#pragma once
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "data/source/growth_limit.h"
#include "data/source/row_source.h"

namespace qtrain {

/// Decoded rows of a columnar file.
class RowBatch {
 public:
  struct Size {
    std::uint64_t memory;    ///< bytes that the batch occupies
    std::uint64_t repeated;  ///< bytes of values that rows share, counted once for each row
  };
  explicit RowBatch(Size size) : size_(size) {}
  virtual ~RowBatch() = default;
  std::uint64_t bytes() const { return size_.memory; }
  std::uint64_t shared_bytes() const { return size_.repeated; }
  /// Returns one row as an object. Throws ErrorKind::input, without a place.
  virtual Json row(std::int64_t row) const = 0;

 private:
  Size size_;
};

/// Rows stored in batches. A batch is decoded when one of its rows is requested; the most recent batches stay in
/// memory, enough for all threads or as many as fit a limit.
class BatchedRows : public RowSource {
 public:
  struct Stored {
    std::string name;
    std::uint64_t bytes;  ///< size of the file
  };
  explicit BatchedRows(const Stored& stored);
  std::int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  std::string place(std::int64_t row) const override { return name() + ":row " + std::to_string(row + 1); }
  Json parse(std::int64_t row) const override;
  std::int64_t bytes(std::int64_t row) const override;
  void release(std::int64_t first, std::int64_t last) const override;

 protected:
  /// `bytes`: estimated size of the batch when decoded. Throws ErrorKind::input if the file then has more rows than its
  /// size justifies, because memory is needed for each.
  void add_batch(std::int64_t rows, std::uint64_t bytes);
  /// Releases the mapped memory of a batch's file.
  virtual void release_batch(std::size_t batch) const = 0;
  /// Decodes a batch. May be called from several threads, but only by one at a time for each batch.
  virtual std::shared_ptr<const RowBatch> load(std::size_t batch) const = 0;

  /// A limit for the values that rows of the file share, counted once for each row. Rows are decoded one at a time, so
  /// these values cost time, but no memory: columns with a constant value of some kilobytes are usual.
  GrowthLimit repetition_limit() const {
    constexpr GrowthLimit::Allowance kWork{.free_bytes = std::uint64_t{8} << 30, .times = 1024};
    return {bytes_of_file_, kAsLines, kWork};
  }
  /// A limit for one row.
  GrowthLimit row_limit() const { return {bytes_of_file_, kAsLines}; }
  /// Appends to a list in the format of unread_columns().
  static void list_column(std::string& list, const std::string& name, const std::string& type) {
    list += (list.empty() ? "" : ", ") + name + " (" + type + ")";
  }

 private:
  /// A batch that is decoded or being decoded.
  struct Slot {
    std::size_t batch;
    std::int64_t bytes;  // as stated by the file, then the actual size
    std::mutex decoding;
    std::shared_ptr<const RowBatch> rows;
    std::exception_ptr error;  // of a damaged batch, so that it is not decoded again for each of its rows
  };
  std::shared_ptr<const RowBatch> batch_at(std::size_t batch) const;
  std::shared_ptr<Slot> slot_of(std::size_t batch) const;
  void keep(Slot& slot, std::shared_ptr<const RowBatch> rows) const;
  std::size_t batch_of(std::int64_t row) const;
  void drop_old_slots() const;

  static constexpr const char* kAsLines = "If you trust the file, save its rows as JSON Lines.";
  std::uint64_t bytes_of_file_, max_rows_;
  std::vector<std::int64_t> ends_, bytes_;  // of each batch
  mutable std::mutex mutex_;
  mutable GrowthLimit growth_, repetition_;           // of the whole file
  mutable std::vector<RowBatch::Size> counted_;       // bytes of each batch that are counted in them
  mutable std::vector<std::shared_ptr<Slot>> slots_;  // most recently used first
};

}  // namespace qtrain
