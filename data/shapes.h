#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

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

/// Recognizes a row's shape, the first of: input_ids (+ labels); prompt + completion; messages; conversations
/// (from/value, as ShareGPT has them); the text field; instruction (+ input, output, system, history), as Alpaca has
/// them; input + output. Keys whose value is null count as absent.
/// Errors (ErrorKind::input, without a place): no known shape, a field of the wrong type, an empty conversation.
Sample read_sample(const Json& row, const ShapeRules& rules);

/// The name of a row's shape, "" if it has none: for listings.
std::string_view shape_name(const Json& row, const ShapeRules& rules);

/// Which answer of a row is empty, in words; "" if none is: a completion of white space, or an assistant's turn without
/// text and tool calls.
std::string empty_answer(const Sample& sample);

/// Why LLaMA-Factory leaves a row out of supervised training, in words; "" if it does not: of a row of instruction or
/// input, whose output is null; of a conversation whose turns, behind a system message, are not a question or the
/// results of tools and an answer, by turns.
std::string missing_answer(const Json& row);
std::string broken_turns(const Sample& sample);

}  // namespace qtrain
