#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/parallel.h"
#include "data/packing.h"
#include "data/reader.h"

namespace qtrain {

class Tokenizer;
class ChatTemplate;

/// The label of a token that is no target.
inline constexpr std::int32_t kNoTarget = -100;

/// One training row: after template, tokenizer, mask, truncation and packing.
struct RowView {
  std::span<const std::int32_t> input_ids;
  std::span<const std::int32_t> labels;           ///< same length, not shifted, kNoTarget where nothing is learnt
  std::span<const std::int32_t> document_starts;  ///< ascending, the first is 0 (none for an empty row); attention and
                                                  ///< positions restart there

  std::int64_t size() const { return static_cast<std::int64_t>(input_ids.size()); }
};

/// How rows are made from files. Names and defaults are those of TRL's SFTConfig unless said.
struct DatasetOptions {
  std::vector<std::string> files;  ///< files, globs, folders
  Split split = Split::train;
  std::optional<std::int64_t> max_length = 1024;  ///< none: rows are not cut
  KeptEnd kept_end = KeptEnd::start;              ///< of a row that is cut; packing keeps the start
  Packing packing = Packing::none;
  bool assistant_only_loss = false;
  std::optional<bool> completion_only_loss;  ///< none: on for prompt + completion rows
  bool last_turn_only_loss = false;          ///< of the assistant's turns the last one alone (not in TRL)
  /// Loss on what stands in the text between a response template and the next instruction template or, where that is
  /// empty, behind the last response template; as TRL's DataCollatorForCompletionOnlyLM. "": not asked for.
  std::string response_template, instruction_template;
  std::string dataset_text_field = "text";
  bool append_eos = true;  ///< text and string completions end in EOS; chat rows end as their template ends them
  /// Rows packed together: TRL packs each batch of 1,000 rows by itself; 0 packs all rows together (not in TRL).
  std::int64_t pack_batch_rows = 1000;
  bool isolate_wrapped = false;  ///< Packing::wrapped keeps the borders of documents (not in TRL)
  bool shuffle_dataset = false;  ///< before packing and once more after it, by seed
  std::uint64_t seed = 42;
  std::int64_t max_rows = 0;  ///< 0: all
  /// Called now and then on the caller's thread while tokenising; it may throw to stop.
  std::function<void(std::int64_t done, std::int64_t rows)> progress = {};
};

/// What the rows looked like before packing; lengths are in tokens, before truncation.
struct DatasetStatistics {
  std::int64_t source_rows = 0;        ///< rows in the files
  std::int64_t rows = 0;               ///< training rows (packed ones, when packing)
  std::int64_t tokens = 0;             ///< tokens of the training rows
  std::int64_t target_tokens = 0;      ///< labels that count: not masked and not at the start of a document
  std::int64_t truncated_rows = 0;     ///< rows that lost tokens to max_length
  std::int64_t truncated_tokens = 0;   ///< tokens lost to max_length
  std::int64_t dropped_rows = 0;       ///< rows left out because truncation or masks left no target
  std::int64_t untargeted_rows = 0;    ///< rows kept without any target
  std::int64_t prompt_mismatches = 0;  ///< prompts whose tokens are no prefix of prompt + completion
  std::int32_t max_token_id = -1;      ///< to be held against the model's vocabulary
  std::vector<std::int32_t> lengths;   ///< per source row, in file order

  std::int64_t min() const;
  std::int64_t max() const;
  double mean() const;
  /// The smallest length that at least a share `p` (0..1) of the rows does not exceed.
  std::int64_t percentile(double p) const;
};

/// All training rows, held flat.
class Dataset {
 public:
  std::int64_t size() const { return static_cast<std::int64_t>(row_offsets_.size()) - 1; }
  RowView row(std::int64_t i) const;
  std::int64_t length(std::int64_t i) const { return row_offsets_[idx(i) + 1] - row_offsets_[idx(i)]; }
  /// Positions of a row's tokens: they restart at 0 with each document.
  std::vector<std::int32_t> position_ids(std::int64_t i) const;
  const DatasetStatistics& statistics() const { return statistics_; }
  /// {"input_ids": [...], "labels": [...], "position_ids": [...]} of one row.
  Json dump(std::int64_t i) const;
  /// A hash of every token, label and border: ranks and a resumed run compare it.
  std::uint64_t fingerprint() const;

  /// Appends a row; document_starts as in RowView (empty stands for {0}).
  void append(const RowView& row);
  void reserve(std::int64_t rows, std::int64_t tokens);
  DatasetStatistics& statistics() { return statistics_; }

 private:
  static std::size_t idx(std::int64_t i) { return static_cast<std::size_t>(i); }

  std::vector<std::int32_t> input_ids_, labels_, document_starts_;
  std::vector<std::int64_t> row_offsets_{0}, document_offsets_{0};
  DatasetStatistics statistics_;
};

/// What turns text into tokens; `chat_template` may be null (then chat rows are refused).
struct TextTools {
  const Tokenizer& tokenizer;
  const ChatTemplate* chat_template = nullptr;
};

/// Reads, tokenises, masks, truncates and packs. The same for any number of threads.
/// Errors (ErrorKind::input) name file and line; ErrorKind::usage for options that contradict each other.
Dataset build_dataset(const DatasetOptions& options, const TextTools& tools, ThreadPool& pool);
/// The same from rows already located (a held-out part of a file, say); `options.files` is not looked at.
Dataset build_dataset(const RawRows& rows, const DatasetOptions& options, const TextTools& tools, ThreadPool& pool);

/// Rows for training and rows held out for evaluation.
struct HeldOut {
  RawRows train, evaluation;
};
/// A random `share` (0..1) of the rows, at least one, is held out: chosen by seed alone, file order kept in both parts.
HeldOut hold_out(const RawRows& rows, double share, std::uint64_t seed);

}  // namespace qtrain
