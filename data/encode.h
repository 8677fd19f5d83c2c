#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/formats/json.h"
#include "data/dataset.h"
#include "data/shapes.h"
#include "data/turns.h"
#include "text/template/chat_template.h"
#include "text/template/rendered.h"
#include "text/tokenizer/tokenizer.h"

namespace qtrain {

/// A row as tokens, before truncation and packing.
struct EncodedRow {
  /// Why it is left out: it cannot be told where the assistant speaks; an answer is empty; its turns are no questions
  /// and answers.
  enum class Lack : std::uint8_t { nothing, place, answer, turns };
  std::vector<std::int32_t> input_ids;
  std::vector<std::int32_t> labels;           ///< same length, kNoTarget where masked
  std::vector<std::int32_t> document_starts;  ///< only where a row of tokens came with position_ids
  bool prompt_mismatch = false;               ///< the prompt's tokens are no prefix of prompt + completion
  bool joined_pair = false;                   ///< of a prompt and a completion as texts
  bool first_prompt = false;                  ///< of a conversation, of which the first message alone is learned
  std::int32_t lost = 0;                      ///< tokens that were cut already
  bool is_text = false;                       ///< a plain text, which may become several rows
  std::optional<std::int32_t> answer_end;     ///< of a conversation that ends with an answer: AnswerEnd::token
  std::string unprinted = {};                 ///< what of it the chat template leaves out, in words
  Lack lacks = Lack::nothing;                 ///< what it would need to be a training row; it has no tokens then
  std::string reason = {};                    ///< in words, where it lacks something
};

/// The key that restricts the loss to what the assistant says.
const char* turns_key(const DatasetOptions& options);

/// Turns rows into tokens and masks as TRL's SFTTrainer does. Safe to use from several threads.
class RowEncoder {
 public:
  RowEncoder(const DatasetOptions& options, const TextTools& tools);

  /// Errors (without a place): ErrorKind::input for rows that are wrong, ErrorKind::usage where an option does not go
  /// with the row's shape.
  EncodedRow encode(const Json& row) const;
  /// The text that is cut into the row's tokens; of a row of tokens the text of these. Errors: those of `encode` that
  /// do not depend on masks.
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
  /// What of a row the template leaves out. An error, or that the row lacks an answer, where it makes one empty.
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
  bool add_special_;         // to texts; blocks have a BOS of their own
  bool assistant_required_;  // a row without the assistant is an error
  const char* turns_key_;    // of the two
  bool skip_empty_, skip_broken_, allow_empty_;
  bool first_prompt_only_;
  bool learns_texts_, splits_texts_;
  std::optional<std::int64_t> question_limit_;  // tokens above which questions are cut
  std::optional<bool> completion_only_;
  std::string response_, instruction_;  // markers; "" if not asked for
  std::string eos_;                     // "" if the tokenizer has none
};

}  // namespace qtrain
