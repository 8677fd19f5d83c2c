#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/json.h"

namespace qtrain {

/// What a row of a data file holds, whatever its keys are called.
enum class RowShape : std::uint8_t {
  tokens,     ///< input_ids (+ labels, masks, position_ids)
  text,       ///< one text
  text_pair,  ///< prompt and completion as text
  chat,       ///< messages
  chat_pair,  ///< prompt and completion as messages
};

struct Sample {
  RowShape shape = RowShape::text;
  std::string prompt;                                         ///< text_pair
  std::string text;                                           ///< text; text_pair: the completion
  Json messages;                                              ///< chat; chat_pair: the prompt
  Json completion;                                            ///< chat_pair
  Json tools;                                                 ///< null: none
  std::string unread = {};                                    ///< a column of tools that is not read, in words
  Json template_kwargs;                                       ///< object: further variables for the chat template
  std::vector<std::int32_t> input_ids, labels, position_ids;  ///< tokens; the last two may be empty
  std::vector<bool> assistant_mask, completion_mask;          ///< tokens; may be empty
};

struct ShapeRules {
  std::string text_field = "text";
  /// Alpaca and input/output rows become chat rows where there is a template, else plain text.
  bool chat_template = true;
  /// Whether a conversation may be empty: `broken_turns` says so then.
  bool broken_turns = false;
};

/// The messages of a chat or chat_pair, those of the completion behind those of the prompt.
Json conversation_of(const Sample& sample);

/// Whether a message may be learned: not where its `weight` is 0, or `loss` or `train` false.
bool is_learned(const Json& message);

/// Recognizes a row's shape, the first of: input_ids (+ labels); prompt + completion; messages; conversations
/// (from/value, as ShareGPT has them); the text field; instruction (+ input, output, system, history), as Alpaca has
/// them; input + output. Keys whose value is null count as absent.
/// Errors (ErrorKind::input, without a place): no known shape, a field of the wrong type, an empty conversation,
/// images, sound or video, rows of preference training (chosen and rejected answers, or a verdict on one).
Sample read_sample(const Json& row, const ShapeRules& rules);

/// The name of a row's shape, "" if it has none: for listings.
std::string_view shape_name(const Json& row, const ShapeRules& rules);

/// That a row would have a known shape if its answer were there, in words: a null stands for it, as for an empty cell
/// of a table; "" otherwise.
std::string missing_answer(const Json& row, const ShapeRules& rules);

/// Which answer of a row is empty, in words; "" if none is: a completion of white space, or an assistant's turn without
/// text and tool calls.
std::string empty_answer(const Sample& sample);

}  // namespace qtrain
