#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/formats/json.h"
#include "core/hash.h"
#include "core/os/spool.h"
#include "core/sha256.h"

namespace qtrain {

/// The label of a token that is not a target.
inline constexpr std::int32_t kNoTarget = -100;

/// A training row after templating, tokenizing, masking, truncation and packing.
struct RowView {
  std::span<const std::int32_t> input_ids;
  std::span<const std::int32_t> labels;           ///< same length, not shifted, kNoTarget if masked
  std::span<const std::int32_t> document_starts;  ///< ascending from 0 (none for an empty row); attention and positions
                                                  ///< restart there

  std::int64_t size() const { return static_cast<std::int64_t>(input_ids.size()); }
};

/// A source row that was truncated to max_length.
struct TruncatedRow {
  std::string place;        ///< "file:line"
  std::int64_t length = 0;  ///< tokens before truncation
};

/// Source rows that were skipped or are incomplete, with the reason for the first one.
struct LeftOutRows {
  std::int64_t count = 0;
  std::string place, reason;  ///< of the first: "file:line"
};

/// The token that ends the answers of chat rows: their last target that is not white space.
struct AnswerEnd {
  std::int32_t token = 0;
  std::int64_t rows = 0;
  std::string text = {};
  bool special = false;  ///< a token that plain text cannot produce
};

/// Statistics of the rows; lengths are in tokens, before truncation and packing.
struct DatasetStatistics {
  std::int64_t source_rows = 0;               ///< rows in the files
  std::int64_t rows = 0;                      ///< training rows (after packing)
  std::int64_t tokens = 0;                    ///< tokens of the training rows
  std::int64_t documents = 0;                 ///< documents in them
  std::int64_t longest = 0;                   ///< tokens of the longest training row
  std::int64_t target_tokens = 0;             ///< labels that count: not masked and not at the start of a document
  std::int64_t truncated_rows = 0;            ///< rows that lost tokens to max_length
  std::int64_t truncated_tokens = 0;          ///< tokens lost to max_length
  std::int64_t dropped_rows = 0;              ///< rows dropped because truncation or masks left no target
  LeftOutRows unplaced;                       ///< the assistant's text could not be located
  LeftOutRows unanswered;                     ///< skipped because an answer is empty
  LeftOutRows broken;                         ///< skipped because questions and answers do not alternate
  LeftOutRows too_long;                       ///< skipped because they exceed max_length
  LeftOutRows unprinted;                      ///< the chat template drops a part of the conversation
  std::int64_t joined_pairs = 0;              ///< rows with prompt and completion as strings
  std::int64_t first_prompts = 0;             ///< conversations of which only the first message is learned
  std::int64_t untargeted_rows = 0;           ///< rows kept without any target
  std::int64_t prompt_mismatches = 0;         ///< prompts whose tokens are not a prefix of prompt + completion
  std::int32_t max_token_id = -1;             ///< to check against the model's vocabulary
  std::vector<std::int32_t> lengths;          ///< per source row that was not skipped, in file order
  std::vector<TruncatedRow> first_truncated;  ///< the first kListedRows truncated rows

  std::vector<AnswerEnd> answer_ends;  ///< for conversations that end with an answer: the first kListedEnds kinds

  static constexpr std::size_t kListedRows = 10, kListedEnds = 16;

  std::int64_t min() const;
  std::int64_t max() const;
  double mean() const;
  /// The smallest length that at least a fraction `p` (0..1) of the rows does not exceed.
  std::int64_t percentile(double p) const;
};

/// The arrays behind a Dataset. R = rows, T = tokens, D = documents.
struct DatasetLayout {
  std::span<const std::int32_t> tokens;            ///< [2T]: for each row its input_ids, then its labels
  std::span<const std::int64_t> row_offsets;       ///< [R+1], in tokens
  std::span<const std::int64_t> document_offsets;  ///< [R+1], into document_starts
  std::span<const std::int32_t> targets;           ///< [R]: number of labels that count
  std::span<const std::int32_t> document_starts;   ///< [D], see RowView
};

/// All training rows, in memory or in a mapped file; copies share the data.
class Dataset {
 public:
  Dataset() = default;
  /// Rows in memory that `owner` keeps alive.
  Dataset(const DatasetLayout& layout, std::shared_ptr<const void> owner) : layout_(layout), owner_(std::move(owner)) {}

  std::int64_t size() const { return static_cast<std::int64_t>(layout_.targets.size()); }
  RowView row(std::int64_t i) const;
  std::int64_t length(std::int64_t i) const {
    return layout_.row_offsets[static_cast<std::size_t>(i) + 1] - layout_.row_offsets[static_cast<std::size_t>(i)];
  }
  /// Number of labels of a row that count: not masked and not at the start of a document.
  std::int64_t targets(std::int64_t i) const { return layout_.targets[static_cast<std::size_t>(i)]; }
  /// Positions of a row's tokens, restarting at 0 in each document.
  std::vector<std::int32_t> position_ids(std::int64_t i) const;
  const DatasetStatistics& statistics() const { return statistics_; }
  DatasetStatistics& statistics() { return statistics_; }
  /// {"input_ids": [...], "labels": [...], "position_ids": [...]} of one row.
  Json dump(std::int64_t i) const;
  /// Hash of every token, label and border, compared between ranks and on resume.
  std::uint64_t fingerprint() const { return fingerprint_; }
  void set_fingerprint(std::uint64_t fingerprint) { fingerprint_ = fingerprint; }
  /// SHA-256 of the rows: for each row its numbers of tokens and documents (64 bits each), then its tokens, labels and
  /// borders (32 bits each), little-endian.
  const std::string& sha256() const { return sha256_; }
  void set_sha256(std::string sha256) { sha256_ = std::move(sha256); }

 private:
  DatasetLayout layout_;
  std::shared_ptr<const void> owner_;
  DatasetStatistics statistics_;
  std::uint64_t fingerprint_ = 0;
  std::string sha256_;
};

/// Collects the rows of a data set one by one.
class DatasetBuilder {
 public:
  /// Receives tokens in the layout of DatasetLayout::tokens.
  using TokenSink = std::function<void(std::span<const std::byte>)>;

  /// Keeps everything in memory.
  DatasetBuilder() = default;
  /// Passes tokens to `sink`, and spools the rest to files in the folder as it grows.
  DatasetBuilder(TokenSink sink, const SpoolOptions& spools);

  /// document_starts as in RowView (empty means {0}).
  void append(const RowView& row);
  DatasetStatistics& statistics() { return statistics_; }
  /// Where the code that builds rows should put its scratch files.
  const SpoolOptions& spools() const { return spools_; }

  /// All rows, except tokens that went to a sink. No more rows can be appended; the view is valid as long as the
  /// builder.
  DatasetLayout layout();
  /// Releases the memory of what has been read.
  void release() const;
  std::uint64_t fingerprint() const { return hasher_.digest().low; }
  std::string sha256() const { return sha256_.hex(); }
  /// Returns the data set. Not available with a sink.
  Dataset finish() &&;

 private:
  void hash(const RowView& row, std::span<const std::int32_t> starts);
  void count(const RowView& row, std::span<const std::int32_t> starts);

  TokenSink sink_;
  SpoolOptions spools_;
  NumberSpool<std::int32_t> tokens_, targets_, document_starts_;
  NumberSpool<std::int64_t> row_offsets_, document_offsets_;
  std::int64_t token_count_ = 0;
  Hasher hasher_;
  Sha256 sha256_;
  DatasetStatistics statistics_;
};

}  // namespace qtrain
