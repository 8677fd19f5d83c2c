#pragma once
#include <cstdint>
#include <ctime>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/parallel.h"
#include "data/packing.h"
#include "data/source/raw_rows.h"
#include "data/token_rows.h"

namespace qtrain {

class Tokenizer;
class ChatTemplate;

/// How training rows are made from files. Names and defaults are TRL's SFTConfig's unless noted.
struct DatasetOptions {
  std::vector<std::string> files;  ///< files, globs, folders
  Split split = Split::train;
  std::optional<std::int64_t> max_length = 1024;  ///< none: rows are not truncated
  TooLong too_long = TooLong::keep_start;         ///< what to do with longer rows
  bool split_long_texts = false;                  ///< longer plain texts become several rows (not in TRL)
  Packing packing = Packing::none;
  bool assistant_only_loss = false;
  std::optional<bool> completion_only_loss;  ///< none: on for prompt + completion rows
  bool last_turn_only_loss = false;          ///< only the assistant's last turn (not in TRL)
  bool skip_empty_answers = false;           ///< skip rows with an empty answer (not in TRL)
  bool skip_broken_turns = false;            ///< skip rows that do not alternate questions and answers (not in TRL)
  bool first_prompt_only = false;            ///< learn only a conversation's first message, as text (not in TRL)
  bool learn_plain_texts = false;    ///< plain texts are learned in full despite assistant_only_loss (not in TRL)
  bool allow_empty_answers = false;  ///< learn answers for which the template renders nothing (not in TRL)
  /// Restrict the loss to text between a response template and the next instruction template or, without one, after the
  /// last response template; as TRL's DataCollatorForCompletionOnlyLM. "": off.
  std::string response_template, instruction_template;
  std::string dataset_text_field = "text";
  bool append_eos = true;  ///< texts and string completions end in EOS; chat rows end as the template does
  /// Rows packed together: TRL packs every 1,000 rows separately; 0 packs all rows together (not in TRL).
  std::int64_t pack_batch_rows = 1000;
  bool isolate_wrapped = false;  ///< keep document borders with Packing::wrapped (not in TRL)
  bool shuffle_dataset = false;  ///< before packing and again after it, by seed
  std::uint64_t seed = 42;
  std::int64_t max_rows = 0;  ///< 0: all
  /// Called from time to time on the caller's thread while tokenizing; may throw to stop.
  std::function<void(std::int64_t done, std::int64_t rows)> progress = {};
};

/// Converts text to tokens; `chat_template` may be null (chat rows are then refused).
struct TextTools {
  const Tokenizer& tokenizer;
  const ChatTemplate* chat_template = nullptr;
  std::optional<std::time_t> template_clock = {};  ///< time that the template sees; absent: now
};

/// Reads, tokenizes, masks, truncates and packs rows. The result does not depend on the number of threads. Throws
/// ErrorKind::input with file and line, and ErrorKind::usage for contradictory options.
Dataset build_dataset(const DatasetOptions& options, const TextTools& tools, ThreadPool& pool);
/// Likewise for rows that are already located (such as the training part of a split); ignores `options.files`.
Dataset build_dataset(const RawRows& rows, const DatasetOptions& options, const TextTools& tools, ThreadPool& pool);

/// Inputs of build_dataset.
struct DatasetSource {
  const RawRows& rows;
  const DatasetOptions& options;
  TextTools tools;
};
/// Likewise into a builder. Memory depends only on the size of single rows, except with options that need all rows at
/// once: shuffle_dataset and packing all rows together take a few bytes per row.
void build_dataset(const DatasetSource& source, ThreadPool& pool, DatasetBuilder& into);

/// Rows for training and rows held out for evaluation.
struct HeldOut {
  RawRows train, evaluation;
};
/// Holds out a random part of the rows, determined by the seed; both parts keep file order. An `amount` below 1 is a
/// fraction (at least one row), otherwise a number of rows. Throws ErrorKind::usage if there are too few rows.
HeldOut hold_out(const RawRows& rows, double amount, std::uint64_t seed);

}  // namespace qtrain
