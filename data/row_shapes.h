#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/json.h"

namespace qtrain {

/// What a row of a data file contains, regardless of its key names.
enum class RowShape : std::uint8_t {
  tokens,     ///< input_ids (+ labels, masks, position_ids)
  text,       ///< one text
  text_pair,  ///< prompt and completion as text
  chat,       ///< chat messages
  chat_pair,  ///< prompt and completion as messages
};

struct Sample {
  RowShape shape = RowShape::text;
  std::string prompt;                                         ///< text_pair
  std::string text;                                           ///< text; text_pair: the completion
  Json messages;                                              ///< chat: all messages; chat_pair: the prompt
  Json completion;                                            ///< chat_pair
  Json tools;                                                 ///< null: none
  std::string unread = {};                                    ///< description of a column of tools that is not read
  Json template_kwargs;                                       ///< object: extra variables for the chat template
  std::vector<std::int32_t> input_ids, labels, position_ids;  ///< for tokens; the last two may be empty
  std::vector<bool> assistant_mask, completion_mask;          ///< for tokens; may be empty
};

struct ShapeRules {
  std::string text_field = "text";
  /// Alpaca and input/output rows become chat rows if there is a chat template, otherwise plain text.
  bool chat_template = true;
  /// Whether conversations may be empty; `broken_turns` reports them later.
  bool broken_turns = false;
};

/// The messages of a chat or chat_pair: the prompt's followed by the completion's.
Json conversation_of(const Sample& sample);

/// Whether a message may be learned: not if its `weight` is 0, or its `loss` or `train` is false.
bool is_learned(const Json& message);

/// Recognizes a row's shape, the first of: input_ids (+ labels); prompt + completion; messages; conversations
/// (ShareGPT's from/value); the text field; instruction (+ input, output, system, history; Alpaca); input + output.
/// Keys whose value is null count as absent. Throws ErrorKind::input (without a place) for an unknown shape, a field of
/// the wrong type, an empty conversation, images, audio or video, and preference-training rows (chosen and rejected
/// answers, or a verdict on one).
Sample read_sample(const Json& row, const ShapeRules& rules);

/// The name of a row's shape for listings, "" if unknown.
std::string_view shape_name(const Json& row, const ShapeRules& rules);

/// The columns that rows of a shape of this name are read from; `shape` is what they become.
std::vector<std::string> columns_of(std::string_view name, RowShape shape, const ShapeRules& rules);

/// If the row would have a known shape except that its answer is null (such as an empty cell of a table), says so;
/// otherwise "".
std::string missing_answer(const Json& row, const ShapeRules& rules);

/// Says which answer of a row is empty; "" if none: a blank completion, or an assistant turn without text and tool
/// calls.
std::string empty_answer(const Sample& sample);

}  // namespace qtrain
