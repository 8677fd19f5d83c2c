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
#include "data/token_masks.h"

namespace qtrain {
namespace {

std::size_t common_prefix(const std::vector<std::int32_t>& a, const std::vector<std::int32_t>& b) {
  const std::size_t n = std::min(a.size(), b.size());
  return static_cast<std::size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(n), b.begin()).first - a.begin());
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

/// Masks the prompt, which ends where its tokens and those of the whole row diverge, and returns that index.
std::size_t RowEncoder::apply_prompt_mask(EncodedRow& row, const std::vector<std::int32_t>& prompt) const {
  const std::size_t shared = common_prefix(prompt, row.input_ids);
  row.prompt_mismatch = shared < prompt.size();
  if (masks_prompts()) std::fill_n(row.labels.begin(), shared, kNoTarget);
  return shared;
}

}  // namespace qtrain
