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

/// The label of a token that is no target.
inline constexpr std::int32_t kNoTarget = -100;

/// One training row: after template, tokenizer, mask, truncation and packing.
struct RowView {
  std::span<const std::int32_t> input_ids;
  std::span<const std::int32_t> labels;           ///< same length, not shifted, kNoTarget where nothing is learned
  std::span<const std::int32_t> document_starts;  ///< ascending, the first is 0 (none for an empty row); attention and
                                                  ///< positions restart there

  std::int64_t size() const { return static_cast<std::int64_t>(input_ids.size()); }
};

/// A source row that lost tokens to max_length.
struct TruncatedRow {
  std::string place;        ///< "file:line"
  std::int64_t length = 0;  ///< in tokens, before
};

/// Source rows that make no training row or not a whole one, and why the first of them does not.
struct LeftOutRows {
  std::int64_t count = 0;
  std::string place, reason;  ///< of the first: "file:line"
};

/// What answers of chat rows end with: their last target that is not white space.
struct AnswerEnd {
  std::int32_t token = 0;
  std::int64_t rows = 0;
  std::string text = {};
  bool special = false;  ///< a token that text alone does not make
};

/// What the rows looked like before packing; lengths are in tokens, before truncation.
struct DatasetStatistics {
  std::int64_t source_rows = 0;               ///< rows in the files
  std::int64_t rows = 0;                      ///< training rows (packed ones, when packing)
  std::int64_t tokens = 0;                    ///< tokens of the training rows
  std::int64_t documents = 0;                 ///< documents in them
  std::int64_t longest = 0;                   ///< tokens of the longest training row
  std::int64_t target_tokens = 0;             ///< labels that count: not masked and not at the start of a document
  std::int64_t truncated_rows = 0;            ///< rows that lost tokens to max_length
  std::int64_t truncated_tokens = 0;          ///< tokens lost to max_length
  std::int64_t dropped_rows = 0;              ///< rows left out because truncation or masks left no target
  LeftOutRows unplaced;                       ///< the assistant's text cannot be told from the rest
  LeftOutRows unanswered;                     ///< an answer is empty, and such rows are skipped
  LeftOutRows broken;                         ///< turns are no questions and answers, and such rows are skipped
  LeftOutRows too_long;                       ///< longer than max_length, and such rows are skipped
  LeftOutRows unprinted;                      ///< the chat template leaves something of the conversation out
  std::int64_t joined_pairs = 0;              ///< rows of a prompt and a completion as texts
  std::int64_t first_prompts = 0;             ///< conversations of which the first message alone is learned
  std::int64_t untargeted_rows = 0;           ///< rows kept without any target
  std::int64_t prompt_mismatches = 0;         ///< prompts whose tokens are no prefix of prompt + completion
  std::int32_t max_token_id = -1;             ///< to be held against the model's vocabulary
  std::vector<std::int32_t> lengths;          ///< per source row that is not left out, in file order
  std::vector<TruncatedRow> first_truncated;  ///< the first kListedRows of them

  std::vector<AnswerEnd> answer_ends;  ///< of conversations that end with an answer: the first kListedEnds kinds

  static constexpr std::size_t kListedRows = 10, kListedEnds = 16;

  std::int64_t min() const;
  std::int64_t max() const;
  double mean() const;
  /// The smallest length that at least a share `p` (0..1) of the rows does not exceed.
  std::int64_t percentile(double p) const;
};

/// Where the rows of a Dataset lie. R = rows, T = tokens, D = documents.
struct DatasetLayout {
  std::span<const std::int32_t> tokens;            ///< [2T]: of each row its input_ids, then its labels
  std::span<const std::int64_t> row_offsets;       ///< [R+1], in tokens
  std::span<const std::int64_t> document_offsets;  ///< [R+1], into document_starts
  std::span<const std::int32_t> targets;           ///< [R]: labels of a row that count
  std::span<const std::int32_t> document_starts;   ///< [D], see RowView
};

/// All training rows, in memory or in a mapped file; copies share them.
class Dataset {
 public:
  Dataset() = default;
  /// Rows whose memory `owner` keeps.
  Dataset(const DatasetLayout& layout, std::shared_ptr<const void> owner) : layout_(layout), owner_(std::move(owner)) {}

  std::int64_t size() const { return static_cast<std::int64_t>(layout_.targets.size()); }
  RowView row(std::int64_t i) const;
  std::int64_t length(std::int64_t i) const {
    return layout_.row_offsets[static_cast<std::size_t>(i) + 1] - layout_.row_offsets[static_cast<std::size_t>(i)];
  }
  /// Labels of a row that count: not masked and not at the start of a document.
  std::int64_t targets(std::int64_t i) const { return layout_.targets[static_cast<std::size_t>(i)]; }
  /// Positions of a row's tokens: they restart at 0 with each document.
  std::vector<std::int32_t> position_ids(std::int64_t i) const;
  const DatasetStatistics& statistics() const { return statistics_; }
  DatasetStatistics& statistics() { return statistics_; }
  /// {"input_ids": [...], "labels": [...], "position_ids": [...]} of one row.
  Json dump(std::int64_t i) const;
  /// A hash of every token, label and border: ranks and a resumed run compare it.
  std::uint64_t fingerprint() const { return fingerprint_; }
  void set_fingerprint(std::uint64_t fingerprint) { fingerprint_ = fingerprint; }
  /// The SHA-256 of the same, for whoever has to be sure: of each row its numbers of tokens and of documents (64 bits
  /// each), its tokens, labels and borders (32 bits each), little-endian.
  const std::string& sha256() const { return sha256_; }
  void set_sha256(std::string sha256) { sha256_ = std::move(sha256); }

 private:
  DatasetLayout layout_;
  std::shared_ptr<const void> owner_;
  DatasetStatistics statistics_;
  std::uint64_t fingerprint_ = 0;
  std::string sha256_;
};

/// Takes the rows of a data set one by one.
class DatasetBuilder {
 public:
  /// Receives the tokens as DatasetLayout::tokens has them.
  using TokenSink = std::function<void(std::span<const std::byte>)>;

  /// Everything stays in memory.
  DatasetBuilder() = default;
  /// Tokens go to `sink`, and the rest to files in the folder when it grows.
  DatasetBuilder(TokenSink sink, const SpoolOptions& spools);

  /// document_starts as in RowView (empty stands for {0}).
  void append(const RowView& row);
  DatasetStatistics& statistics() { return statistics_; }
  /// Where scratch of the one who builds should go.
  const SpoolOptions& spools() const { return spools_; }

  /// All rows but for tokens that went to a sink. Nothing can be appended any more; the view lasts as long as the
  /// builder.
  DatasetLayout layout();
  /// Gives back the memory behind what has been read of it.
  void release() const;
  std::uint64_t fingerprint() const { return hasher_.digest().low; }
  std::string sha256() const { return sha256_.hex(); }
  /// The data set, where there is no sink.
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
