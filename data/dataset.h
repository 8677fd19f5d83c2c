#pragma once
#include <cstdint>
#include <ctime>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/parallel.h"
#include "data/packing.h"
#include "data/source/reader.h"
#include "data/token_rows.h"

namespace qtrain {

class Tokenizer;
class ChatTemplate;

/// How rows are made from files. Names and defaults are those of TRL's SFTConfig unless said.
struct DatasetOptions {
  std::vector<std::string> files;  ///< files, globs, folders
  Split split = Split::train;
  std::optional<std::int64_t> max_length = 1024;  ///< none: rows are not cut
  TooLong too_long = TooLong::keep_start;         ///< of a row that is longer
  bool split_long_texts = false;                  ///< plain texts that are longer become several rows (not in TRL)
  Packing packing = Packing::none;
  bool assistant_only_loss = false;
  std::optional<bool> completion_only_loss;  ///< none: on for prompt + completion rows
  bool last_turn_only_loss = false;          ///< of the assistant's turns the last one alone (not in TRL)
  bool skip_empty_answers = false;           ///< leave rows out in which an answer is empty (not in TRL)
  bool skip_broken_turns = false;            ///< leave rows out whose turns are no questions and answers (not in TRL)
  bool first_prompt_only = false;            ///< conversations become their first message, as a text (not in TRL)
  bool learn_plain_texts = false;            ///< plain texts are learned whole beside assistant_only_loss (not in TRL)
  bool allow_empty_answers = false;          ///< learn answers of which the template writes nothing (not in TRL)
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
  /// Called now and then on the caller's thread while tokenizing; it may throw to stop.
  std::function<void(std::int64_t done, std::int64_t rows)> progress = {};
};

/// What turns text into tokens; `chat_template` may be null (then chat rows are refused).
struct TextTools {
  const Tokenizer& tokenizer;
  const ChatTemplate* chat_template = nullptr;
  std::optional<std::time_t> template_clock = {};  ///< what the template's clock shows; the time if absent
};

/// Reads, tokenizes, masks, truncates and packs. The same for any number of threads.
/// Errors (ErrorKind::input) name file and line; ErrorKind::usage for options that contradict each other.
Dataset build_dataset(const DatasetOptions& options, const TextTools& tools, ThreadPool& pool);
/// The same from rows already located (a held-out part of a file, say); `options.files` is not looked at.
Dataset build_dataset(const RawRows& rows, const DatasetOptions& options, const TextTools& tools, ThreadPool& pool);

/// What a data set is made of.
struct DatasetSource {
  const RawRows& rows;
  const DatasetOptions& options;
  TextTools tools;
};
/// The same into a builder, in memory that depends on the size of single rows only, and on options that need all rows
/// at once: shuffle_dataset and packing all rows together take some bytes for each.
void build_dataset(const DatasetSource& source, ThreadPool& pool, DatasetBuilder& into);

/// Rows for training and rows held out for evaluation.
struct HeldOut {
  RawRows train, evaluation;
};
/// A random part of the rows is held out, by seed alone; both parts keep the order of the files. `amount` below 1 is a
/// share (at least one row), else a number of rows. A usage error where it is more than there are.
HeldOut hold_out(const RawRows& rows, double amount, std::uint64_t seed);

}  // namespace qtrain
