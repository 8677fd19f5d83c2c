#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "data/encode.h"
#include "data/markers.h"
#include "data/token_masks.h"
#include "text/template/assistant_ranges.h"
#include "text/template/message.h"
#include "text/template/unprinted.h"

/// How RowEncoder encodes conversations.
namespace qtrain {
namespace {

/// transformers marks an answer from the token with its first character to the first token with its last one, so if the
/// last character spans several tokens, only the first of them is included.
TextRanges to_last_character(TextRanges ranges, const std::string& text) {
  for (auto& [begin, end] : ranges) {
    std::size_t last = end;
    while (last > begin && (static_cast<unsigned char>(text[last - 1]) & 0xc0) == 0x80) --last;
    if (last > begin) end = last;  // just after the first byte of the character
  }
  return ranges;
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == text.npos;
}

/// Renders; if that fails, the error suggests quoting a content that is a number, which most templates cannot handle.
template <class Render>
Rendered naming_numbers(const Json& messages, Render&& render) {
  try {
    return render();
  } catch (const Error& e) {
    ErrorText text = e.text();
    for (std::size_t i = 0; i < messages.size() && text.remedy.empty(); ++i)
      if (const Json content = messages[i].value("content", Json()); content.is_number() || content.is_boolean())
        text.remedy = fmt::format("The content of message {} is {}: make it a string.", i, dump_json(content));
    throw Error(e.kind(), std::move(text));
  }
}

bool has_assistant(const Json& messages) {
  return std::any_of(messages.begin(), messages.end(),
                     [](const Json& m) { return m.value("role", "") == "assistant"; });
}

}  // namespace

const ChatTemplate& RowEncoder::chat_template() const {
  if (tools_.chat_template == nullptr)
    fail(ErrorKind::input, {.cause = "the row contains messages, but the model folder has no chat template",
                            .remedy = "Add a chat_template.jinja to it, or set chat_template_path."});
  return *tools_.chat_template;
}

/// Which tokens of a conversation belong to the assistant's turns; none if that cannot be determined.
std::vector<bool> RowEncoder::said_in(const RenderInput& input) const {
  const Rendered rendered = render_with_assistant_ranges(*tools_.chat_template, input);
  const Tokenizer::Encoding encoding = encode(rendered.text, {.add_special = false}, Offsets::needed);
  if (rendered.unplaced.empty()) return tokens_in(encoding, to_last_character(rendered.generated, rendered.text));
  return std::vector<bool>(encoding.ids.size());
}

/// All assistant turns, or only the last one with last_turn_only_loss.
TextRanges RowEncoder::last_turns(TextRanges turns) const {
  if (last_turn_only_ && turns.size() > 1) turns.erase(turns.begin(), turns.end() - 1);
  return turns;
}

/// Fails for a row without marked text although the template has {% generation %} tags.
void RowEncoder::check_marked(const Json& messages) const {
  if (has_assistant(messages))
    fail(ErrorKind::input,
         {.cause = fmt::format("{} is set, but the chat template marks no assistant text in this row", turns_key_),
          .remedy = "Check the template's {% generation %} blocks."});
  if (assistant_required_)
    fail(ErrorKind::input, {.cause = "assistant_only_loss is set, but the row has no assistant message",
                            .remedy = "Remove the row, or train on all tokens (assistant_only_loss: false)."});
}

/// The first message whose assistant text has to be located: masked prompts are not learned, and with
/// last_turn_only_loss only the last turn is.
std::size_t RowEncoder::first_learned(const Sample& sample, const Json& messages) const {
  std::size_t last = messages.size();
  while (last > 0 && !is_assistant(messages[last - 1])) --last;
  if (last == 0) return 0;
  if (last_turn_only_) return last - 1;
  const bool of_completion = sample.shape == RowShape::chat_pair && masks_prompts();
  return of_completion ? std::min(sample.messages.size(), last - 1) : 0;
}

EncodedRow RowEncoder::encode_chat(const Sample& sample) const {
  const ChatTemplate& chat = chat_template();
  const Json messages = conversation_of(sample);
  const RenderInput input{
      .messages = &messages, .tools = &sample.tools, .extra = &sample.template_kwargs, .now = tools_.template_clock};
  EncodedRow checked = check_printed(sample, input);
  if (checked.lacks != EncodedRow::Lack::nothing) return checked;
  EncodedRow row = encode_turns(sample, input);
  row.unprinted = std::move(checked.unprinted);
  if (row.lacks != EncodedRow::Lack::nothing) return row;
  if (sample.shape == RowShape::chat_pair) {
    RenderInput prompt = input;
    prompt.messages = &sample.messages;
    prompt.add_generation_prompt = true;
    apply_prompt_mask(row, tools_.tokenizer.encode(chat.render(prompt).text, {.add_special = false}));
  }
  if (is_assistant(messages.back())) row.answer_end = answer_end(row.labels);
  if (question_limit_ && static_cast<std::int64_t>(row.input_ids.size()) > *question_limit_)
    shorten(row, said_in(input));
  return row;
}

EncodedRow RowEncoder::check_printed(const Sample& sample, const RenderInput& input) const {
  EncodedRow row{.unprinted = sample.unread};
  for (const Unprinted& lost : unprinted_parts(*tools_.chat_template, input)) {
    if (row.unprinted.empty()) row.unprinted = lost.name();
    const Json& message = (*input.messages)[lost.message];
    const bool prompt = sample.shape == RowShape::chat_pair && masks_prompts() && lost.message < sample.messages.size();
    if (!lost.empties_turn || !is_assistant(message) || !is_learned(message) || prompt || allow_empty_) continue;
    const std::string cause =
        fmt::format("the chat template drops {}, which leaves an answer to be learned empty", lost.name());
    if (skip_empty_) return {.lacks = EncodedRow::Lack::answer, .reason = cause};
    fail(ErrorKind::input,
         {.cause = cause,
          .remedy = "Use a chat template that renders it (chat_template_path), skip such rows (skip_empty_answers: "
                    "true), or learn empty answers (allow_empty_answers: true)."});
  }
  return row;
}

/// Which messages exclude themselves from the loss.
TurnSwitches RowEncoder::switches_in(const Sample& sample, const Json& messages) const {
  const bool pair = sample.shape == RowShape::chat_pair && masks_prompts();
  TurnSwitches switches = switches_of(messages, pair ? sample.messages.size() : 0);
  if (!assistant_only_ && switches.others_off > 0 && !switches.all_others_off)
    fail(ErrorKind::input, {.cause = "some messages that are not the assistant's are excluded from the loss (weight, "
                                     "loss, train), and others are not",
                            .remedy = "Set assistant_only_loss: true, or exclude all of them."});
  return switches;
}

/// Renders and tokenizes a conversation, with labels for what is learned.
EncodedRow RowEncoder::encode_turns(const Sample& sample, const RenderInput& input) const {
  const ChatTemplate& chat = *tools_.chat_template;
  const Json& messages = *input.messages;
  const TurnSwitches switches = switches_in(sample, messages);
  const bool answers_only = assistant_only_ || switches.all_others_off, by_turns = answers_only || switches.any_off,
             tagged = chat.has_generation_tags(&sample.tools);
  const std::size_t first = tagged ? 0 : first_learned(sample, messages);
  const Rendered rendered = naming_numbers(messages, [&] {
    return by_turns ? render_with_assistant_ranges(chat, input, {.first = first}) : chat.render(input);
  });
  if (!rendered.unplaced.empty()) return {.lacks = EncodedRow::Lack::place, .reason = rendered.unplaced};
  const Offsets offsets = by_turns || !response_.empty() ? Offsets::needed : Offsets::none;
  const Tokenizer::Encoding encoding = encode(rendered.text, {.add_special = false}, offsets);

  EncodedRow row{.input_ids = encoding.ids, .labels = encoding.ids};
  if (by_turns) {
    const SplitTurns turns = split_turns(to_last_character(last_turns(rendered.generated), rendered.text), messages,
                                         switches, last_turn_only_ ? first_learned(sample, messages) : first);
    if (!turns.placed)
      return {.lacks = EncodedRow::Lack::place,
              .reason = "the assistant turns that are excluded from the loss could not be located"};
    const std::vector<bool> said = tokens_in(encoding, turns.learned), silent = tokens_in(encoding, turns.unlearned);
    if (!switches.any_off && std::find(said.begin(), said.end(), true) == said.end()) {
      if (!tagged) return {.lacks = EncodedRow::Lack::place, .reason = "the assistant says nothing in it"};
      check_marked(messages);
    }
    for (std::size_t t = 0; t < said.size(); ++t)
      if (silent[t] || (answers_only && !said[t])) row.labels[t] = kNoTarget;
  }
  if (!response_.empty())
    mask_where_not(row.labels, tokens_in(encoding, answers_between(rendered.text, {response_, instruction_})));
  return row;
}

/// The last target that is not white space, which many templates write after the end of a turn.
std::optional<std::int32_t> RowEncoder::answer_end(const std::vector<std::int32_t>& labels) const {
  for (std::size_t t = labels.size(); t-- > 0;)
    if (labels[t] != kNoTarget && !is_blank(tools_.tokenizer.decode(std::span(&labels[t], 1)))) return labels[t];
  return {};
}

}  // namespace qtrain
