#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/formats/json.h"
#include "data/dataset.h"
#include "data/row_shapes.h"
#include "data/turns.h"
#include "text/template/chat_template.h"
#include "text/template/rendered.h"
#include "text/tokenizer/tokenizer.h"

namespace qtrain {

/// A tokenized row, before truncation and packing.
struct EncodedRow {
  /// Why a row is skipped: the assistant's text cannot be located; an answer is empty; turns do not alternate.
  enum class Lack : std::uint8_t { nothing, place, answer, turns };
  std::vector<std::int32_t> input_ids;
  std::vector<std::int32_t> labels;           ///< same length, kNoTarget where masked
  std::vector<std::int32_t> document_starts;  ///< only if a row of tokens has position_ids
  bool prompt_mismatch = false;               ///< the prompt's tokens are not a prefix of prompt + completion
  bool joined_pair = false;                   ///< prompt and completion are strings
  bool first_prompt = false;                  ///< only the conversation's first message is learned
  std::int32_t lost = 0;                      ///< tokens already truncated
  bool is_text = false;                       ///< plain text, which may become several rows
  std::optional<std::int32_t> answer_end;     ///< AnswerEnd::token of a conversation that ends with an answer
  std::string unprinted = {};                 ///< description of what the chat template drops
  Lack lacks = Lack::nothing;  ///< what the row lacks to be a training row; if anything, it has no tokens
  std::string reason = {};     ///< description of what it lacks
};

/// The config key that restricts the loss to the assistant's text.
const char* turns_key(const DatasetOptions& options);

/// Tokenizes and masks rows as TRL's SFTTrainer does. Thread-safe.
class RowEncoder {
 public:
  RowEncoder(const DatasetOptions& options, const TextTools& tools);

  /// Throws (without a place) ErrorKind::input for invalid rows, ErrorKind::usage if an option does not fit the row's
  /// shape.
  EncodedRow encode(const Json& row) const;
  /// The text that the row's tokens come from; for a row of tokens, the decoded text. Throws as `encode` does, except
  /// for errors about masks.
  std::string text_of(const Json& row) const;

 private:
  Sample read(const Json& row) const;
  std::optional<EncodedRow> left_out(const Sample& sample) const;
  bool takes_first_prompt(RowShape shape) const {
    return first_prompt_only_ && shape != RowShape::tokens && shape != RowShape::text;
  }
  EncodedRow encode_first_prompt(const Sample& sample) const;
  void check_masks(RowShape shape) const;
  bool masks_prompts() const;
  std::size_t first_learned(const Sample& sample, const Json& messages) const;
  EncodedRow encode_tokens(Sample sample) const;
  EncodedRow encode_text_pair(const Sample& sample) const;
  EncodedRow encode_chat(const Sample& sample) const;
  EncodedRow encode_turns(const Sample& sample, const RenderInput& input) const;
  /// Reports what the template drops from a row. If that leaves a learned answer empty, throws or marks the row as
  /// lacking an answer.
  EncodedRow check_printed(const Sample& sample, const RenderInput& input) const;
  TurnSwitches switches_in(const Sample& sample, const Json& messages) const;

  enum class Offsets : std::uint8_t { none, needed };
  Tokenizer::Encoding encode(const std::string& text, EncodeOptions options, Offsets offsets) const;
  Tokenizer::Encoding tokens_of(const std::string& text) const;
  Tokenizer::Encoding tokens_with_eos(const std::string& text) const;
  TextRanges last_turns(TextRanges turns) const;
  const ChatTemplate& chat_template() const;
  void check_marked(const Json& messages) const;
  std::string closed_text(const std::string& prompt, const std::string& answer) const;
  EncodedRow text_row(const std::string& prompt, const std::string& answer) const;
  std::size_t apply_prompt_mask(EncodedRow& row, const std::vector<std::int32_t>& prompt) const;
  void shorten(EncodedRow& row, const std::vector<bool>& said) const;
  std::vector<bool> said_in(const RenderInput& input) const;
  std::optional<std::int32_t> answer_end(const std::vector<std::int32_t>& labels) const;

  TextTools tools_;
  ShapeRules rules_;
  bool assistant_only_, last_turn_only_, append_eos_;
  bool add_special_;         // for texts; blocks have their own BOS
  bool assistant_required_;  // rows without the assistant are errors
  const char* turns_key_;    // for error messages
  bool skip_empty_, skip_broken_, allow_empty_;
  bool first_prompt_only_;
  bool learns_texts_, splits_texts_;
  std::optional<std::int64_t> question_limit_;  // length above which questions are truncated
  std::optional<bool> completion_only_;
  std::string response_, instruction_;  // "" if not set
  std::string eos_;                     // "" if the tokenizer has none
};

}  // namespace qtrain
