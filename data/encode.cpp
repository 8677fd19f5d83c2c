#include "data/encode.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "data/broken_turns.h"
#include "data/first_prompt.h"
#include "data/markers.h"
#include "data/shorten.h"
#include "text/template/assistant_ranges.h"
#include "text/template/message.h"
#include "text/template/unprinted.h"

namespace qtrain {
namespace {

std::size_t common_prefix(const std::vector<std::int32_t>& a, const std::vector<std::int32_t>& b) {
  const std::size_t n = std::min(a.size(), b.size());
  return static_cast<std::size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(n), b.begin()).first - a.begin());
}

void mask_where_not(std::vector<std::int32_t>& labels, const std::vector<bool>& keep) {
  for (std::size_t t = 0; t < keep.size(); ++t)
    if (!keep[t]) labels[t] = kNoTarget;
}

/// Indices where position_ids restart; otherwise they must count up from 0.
std::vector<std::int32_t> starts_of(const std::vector<std::int32_t>& positions) {
  std::vector<std::int32_t> starts;
  for (std::size_t t = 0; t < positions.size(); ++t) {
    if (positions[t] == 0) {
      starts.push_back(static_cast<std::int32_t>(t));
    } else if (t == 0 || positions[t] != positions[t - 1] + 1) {
      fail(ErrorKind::input,
           {.cause = "position_ids must count up by one from each 0, but do not at token " + std::to_string(t)});
    }
  }
  return starts;
}

/// Whether each token overlaps one of the byte ranges.
std::vector<bool> tokens_in(const Tokenizer::Encoding& encoding, const TextRanges& ranges) {
  std::vector<bool> inside(encoding.ids.size());
  std::size_t range = 0;
  for (std::size_t t = 0; t < inside.size(); ++t) {
    const auto [begin, end] = encoding.offsets[t];
    while (range < ranges.size() && ranges[range].second <= begin) ++range;
    inside[t] = range < ranges.size() && end > ranges[range].first && end > begin;
  }
  return inside;
}

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

const char* turns_key(const DatasetOptions& options) {
  return options.assistant_only_loss ? "assistant_only_loss" : "last_turn_only_loss";
}

RowEncoder::RowEncoder(const DatasetOptions& options, const TextTools& tools)
    : tools_(tools),
      rules_{.text_field = options.dataset_text_field,
             .chat_template = tools.chat_template != nullptr || options.first_prompt_only,
             .broken_turns = options.skip_broken_turns},
      assistant_only_(options.assistant_only_loss || options.last_turn_only_loss),
      last_turn_only_(options.last_turn_only_loss),
      append_eos_(options.append_eos),
      add_special_(options.packing != Packing::blocks),
      assistant_required_(options.assistant_only_loss),
      turns_key_(turns_key(options)),
      skip_empty_(options.skip_empty_answers),
      skip_broken_(options.skip_broken_turns),
      allow_empty_(options.allow_empty_answers),
      first_prompt_only_(options.first_prompt_only),
      learns_texts_(options.learn_plain_texts),
      splits_texts_(options.split_long_texts),
      completion_only_(options.completion_only_loss),
      response_(options.response_template),
      instruction_(options.instruction_template) {
  const SpecialTokens& special = tools.tokenizer.special();
  if (special.eos_id) eos_ = tools.tokenizer.token(*special.eos_id);
  const bool cuts = options.packing == Packing::none || options.packing == Packing::bfd;
  if (options.too_long == TooLong::keep_answers && cuts) question_limit_ = options.max_length;
}

/// Marks a row that is skipped regardless of its text.
std::optional<EncodedRow> RowEncoder::left_out(const Sample& sample) const {
  if (skip_broken_)
    if (std::string reason = broken_turns(sample); !reason.empty())
      return EncodedRow{.lacks = EncodedRow::Lack::turns, .reason = std::move(reason)};
  if (skip_empty_ && !first_prompt_only_)
    if (std::string reason = empty_answer(sample); !reason.empty())
      return EncodedRow{.lacks = EncodedRow::Lack::answer, .reason = std::move(reason)};
  return {};
}

Sample RowEncoder::read(const Json& row) const {
  return first_prompt_only_ ? read_prompt(row, rules_) : read_sample(row, rules_);
}

EncodedRow RowEncoder::encode(const Json& row) const {
  if ((skip_broken_ || skip_empty_) && !first_prompt_only_)
    if (std::string reason = missing_answer(row, rules_); !reason.empty())
      return {.lacks = skip_broken_ ? EncodedRow::Lack::turns : EncodedRow::Lack::answer, .reason = std::move(reason)};
  Sample sample = read(row);
  const bool shortens = takes_first_prompt(sample.shape);
  check_masks(shortens ? RowShape::text : sample.shape);
  if (std::optional<EncodedRow> out = left_out(sample)) return std::move(*out);
  if (shortens) return encode_first_prompt(sample);
  switch (sample.shape) {
    case RowShape::tokens: return encode_tokens(std::move(sample));
    case RowShape::text: {
      EncodedRow text = text_row("", sample.text);
      text.is_text = splits_texts_;
      return text;
    }
    case RowShape::text_pair: return encode_text_pair(sample);
    case RowShape::chat:
    case RowShape::chat_pair: return encode_chat(sample);
  }
  return {};
}

EncodedRow RowEncoder::encode_first_prompt(const Sample& sample) const {
  EncodedRow row = text_row("", first_prompt(sample));
  row.is_text = splits_texts_;
  row.first_prompt = true;
  return row;
}

void RowEncoder::check_masks(RowShape shape) const {
  if (assistant_only_ && !learns_texts_ && (shape == RowShape::text || shape == RowShape::text_pair))
    fail(ErrorKind::usage, {.cause = fmt::format("{} is set, but the row is text without roles", turns_key_),
                            .remedy = fmt::format("Turn {} off, or use rows with messages.", turns_key_)});
  if (shape != RowShape::tokens) return;
  if (last_turn_only_ || !response_.empty())
    fail(ErrorKind::usage, {.cause = fmt::format("{} is set, but the row contains tokens, not text",
                                                 last_turn_only_ ? "last_turn_only_loss" : "response_template"),
                            .remedy = "Add labels to the input_ids."});
}

EncodedRow RowEncoder::encode_tokens(Sample sample) const {
  for (const std::int32_t id : sample.input_ids)
    if (id < 0)
      fail(ErrorKind::input, {.cause = "input_ids contains " + std::to_string(id) + ", which is not a token id"});
  for (const std::int32_t label : sample.labels)
    if (label < 0 && label != kNoTarget)
      fail(ErrorKind::input, {.cause = "labels contains " + std::to_string(label),
                              .remedy = "A label is a token id, or -100 if masked."});
  EncodedRow row;
  row.document_starts = starts_of(sample.position_ids);
  const bool labeled = !sample.labels.empty();
  row.labels = labeled ? std::move(sample.labels) : sample.input_ids;
  row.input_ids = std::move(sample.input_ids);
  if (labeled) return row;  // labels are used as they are
  mask_where_not(row.labels, sample.assistant_mask);
  if (completion_only_.value_or(false)) mask_where_not(row.labels, sample.completion_mask);
  return row;
}

/// Adds special tokens as the tokenizer does, but does not duplicate a BOS or EOS that the text already has. Computes
/// offsets only if a mask needs them.
Tokenizer::Encoding RowEncoder::tokens_of(const std::string& text) const {
  const SpecialTokens& special = tools_.tokenizer.special();
  Tokenizer::Encoding encoding =
      encode(text, {.add_special = add_special_}, response_.empty() ? Offsets::none : Offsets::needed);
  if (!add_special_) return encoding;
  auto& [ids, offsets] = encoding;
  const auto twice = [&](std::size_t at, std::optional<std::int32_t> id) {
    return id && ids[at] == *id && ids[at + 1] == *id;
  };
  if (special.add_bos && ids.size() >= 2 && twice(0, special.bos_id)) {
    ids.erase(ids.begin());
    if (!offsets.empty()) offsets.erase(offsets.begin());
  }
  if (special.add_eos && ids.size() >= 2 && twice(ids.size() - 2, special.eos_id)) {
    ids.pop_back();
    if (!offsets.empty()) offsets.pop_back();
  }
  return encoding;
}

Tokenizer::Encoding RowEncoder::encode(const std::string& text, EncodeOptions options, Offsets offsets) const {
  if (offsets == Offsets::needed) return tools_.tokenizer.encode_with_offsets(text, options);
  return {.ids = tools_.tokenizer.encode(text, options), .offsets = {}};
}

/// Plain text followed by the EOS to be learned.
std::string RowEncoder::closed_text(const std::string& prompt, const std::string& answer) const {
  const bool closed = eos_.empty() || !append_eos_ || answer.ends_with(eos_);
  return prompt + answer + (closed ? "" : eos_);
}

std::string RowEncoder::text_of(const Json& row) const {
  const Sample sample = read(row);
  if (takes_first_prompt(sample.shape)) return closed_text("", first_prompt(sample));
  switch (sample.shape) {
    case RowShape::tokens: return tools_.tokenizer.decode(sample.input_ids);
    case RowShape::text: return closed_text("", sample.text);
    case RowShape::text_pair: return closed_text(sample.prompt, sample.text);
    case RowShape::chat:
    case RowShape::chat_pair: break;
  }
  const Json messages = conversation_of(sample);
  return chat_template()
      .render({.messages = &messages,
               .tools = &sample.tools,
               .extra = &sample.template_kwargs,
               .now = tools_.template_clock})
      .text;
}

const ChatTemplate& RowEncoder::chat_template() const {
  if (tools_.chat_template == nullptr)
    fail(ErrorKind::input, {.cause = "the row contains messages, but the model folder has no chat template",
                            .remedy = "Add a chat_template.jinja to it, or set chat_template_path."});
  return *tools_.chat_template;
}

/// Tokens of prompt and answer, with EOS appended unless the answer already ends in it.
EncodedRow RowEncoder::text_row(const std::string& prompt, const std::string& answer) const {
  const std::string text = closed_text(prompt, answer);
  const Tokenizer::Encoding encoding = tokens_with_eos(text);
  EncodedRow row{.input_ids = encoding.ids, .labels = encoding.ids};
  if (!response_.empty())
    mask_where_not(row.labels, tokens_in(encoding, answers_between(text, {response_, instruction_})));
  return row;
}

Tokenizer::Encoding RowEncoder::tokens_with_eos(const std::string& text) const {
  if (!append_eos_ || eos_.empty()) return tokens_of(text);
  const std::string body = text.substr(0, text.size() - eos_.size());
  const std::int32_t eos = *tools_.tokenizer.special().eos_id;
  const bool adds = add_special_ && tools_.tokenizer.special().add_eos;
  Tokenizer::Encoding encoding = tokens_of(adds ? body : body + eos_);
  if (!adds && (encoding.ids.empty() || encoding.ids.back() != eos)) {
    // The tokenizer does not parse special tokens in text (sentencepiece): append the id itself.
    encoding = tokens_of(body);
    encoding.ids.push_back(eos);
    if (!response_.empty()) encoding.offsets.emplace_back();
  }
  if (!encoding.offsets.empty()) encoding.offsets.back() = {body.size(), body.size() + eos_.size()};
  return encoding;
}

EncodedRow RowEncoder::encode_text_pair(const Sample& sample) const {
  EncodedRow row = text_row(sample.prompt, sample.text);
  const std::size_t prompt = apply_prompt_mask(row, tokens_of(sample.prompt).ids);
  row.joined_pair = true;
  std::vector<bool> answer(row.input_ids.size(), true);
  std::fill_n(answer.begin(), prompt, false);
  shorten(row, answer);
  return row;
}

/// Whether the prompt of a pair is masked.
bool RowEncoder::masks_prompts() const {
  return completion_only_.value_or(true);
}

/// Truncates a row that is too long, questions before answers.
void RowEncoder::shorten(EncodedRow& row, const std::vector<bool>& said) const {
  if (!question_limit_ || static_cast<std::int64_t>(row.input_ids.size()) <= *question_limit_) return;
  const std::vector<bool> kept = kept_tokens(said, {.room = *question_limit_, .last_first = last_turn_only_});
  std::size_t size = 0;
  for (std::size_t t = 0; t < kept.size(); ++t) {
    if (!kept[t]) continue;
    row.input_ids[size] = row.input_ids[t];
    row.labels[size++] = row.labels[t];
  }
  row.lost = static_cast<std::int32_t>(row.input_ids.size() - size);
  row.input_ids.resize(size);
  row.labels.resize(size);
}

/// Which tokens of a conversation belong to the assistant's turns; none if that cannot be determined.
std::vector<bool> RowEncoder::said_in(const RenderInput& input) const {
  const Rendered rendered = render_with_assistant_ranges(*tools_.chat_template, input, 0);
  const Tokenizer::Encoding encoding = encode(rendered.text, {.add_special = false}, Offsets::needed);
  if (rendered.unplaced.empty()) return tokens_in(encoding, to_last_character(rendered.generated, rendered.text));
  return std::vector<bool>(encoding.ids.size());
}

/// Masks the prompt, which ends where its tokens and those of the whole row diverge, and returns that index.
std::size_t RowEncoder::apply_prompt_mask(EncodedRow& row, const std::vector<std::int32_t>& prompt) const {
  const std::size_t shared = common_prefix(prompt, row.input_ids);
  row.prompt_mismatch = shared < prompt.size();
  if (masks_prompts()) std::fill_n(row.labels.begin(), shared, kNoTarget);
  return shared;
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
  const Rendered rendered = naming_numbers(
      messages, [&] { return by_turns ? render_with_assistant_ranges(chat, input, first) : chat.render(input); });
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
