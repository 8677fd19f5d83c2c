#include "data/encode.h"

#include <algorithm>
#include <utility>

#include "data/template/chat_template.h"
#include "data/tokenizer/tokenizer.h"

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

/// Where position_ids restart; they must count up from 0 otherwise.
std::vector<std::int32_t> starts_of(const std::vector<std::int32_t>& positions) {
  std::vector<std::int32_t> starts;
  for (std::size_t t = 0; t < positions.size(); ++t) {
    if (positions[t] == 0) {
      starts.push_back(static_cast<std::int32_t>(t));
    } else if (t == 0 || positions[t] != positions[t - 1] + 1) {
      fail(ErrorKind::input, {.cause = "position_ids must count up by one from each 0, at token " + std::to_string(t)});
    }
  }
  return starts;
}

/// Which tokens touch one of the byte ranges, as transformers counts a token that reaches over the beginning of what
/// the assistant says.
std::vector<bool> tokens_in(const Tokenizer::Encoding& encoding,
                            const std::vector<std::pair<std::size_t, std::size_t>>& ranges) {
  std::vector<bool> inside(encoding.ids.size());
  std::size_t range = 0;
  for (std::size_t t = 0; t < inside.size(); ++t) {
    const auto [begin, end] = encoding.offsets[t];
    while (range < ranges.size() && ranges[range].second <= begin) ++range;
    inside[t] = range < ranges.size() && end > ranges[range].first && end > begin;
  }
  return inside;
}

bool has_assistant(const Json& messages) {
  return std::any_of(messages.begin(), messages.end(),
                     [](const Json& m) { return m.value("role", "") == "assistant"; });
}

}  // namespace

RowEncoder::RowEncoder(const DatasetOptions& options, const TextTools& tools)
    : tools_(tools),
      rules_{.text_field = options.dataset_text_field, .chat_template = tools.chat_template != nullptr},
      assistant_only_(options.assistant_only_loss),
      append_eos_(options.append_eos),
      completion_only_(options.completion_only_loss) {
  const SpecialTokens& special = tools.tokenizer.special();
  if (special.eos_id) eos_ = tools.tokenizer.token(*special.eos_id);
}

EncodedRow RowEncoder::encode(const Json& row) const {
  Sample sample = read_sample(row, rules_);
  if (assistant_only_ && (sample.form == RowForm::text || sample.form == RowForm::text_pair))
    fail(ErrorKind::usage, {.cause = "assistant_only_loss is set, but the row is text without roles",
                            .remedy = "Turn assistant_only_loss off, or give messages."});
  switch (sample.form) {
    case RowForm::tokens: return encode_tokens(std::move(sample));
    case RowForm::text: return encode_text(sample);
    case RowForm::text_pair: return encode_text_pair(sample);
    case RowForm::chat:
    case RowForm::chat_pair: return encode_chat(sample);
  }
  return {};
}

EncodedRow RowEncoder::encode_tokens(Sample sample) const {
  for (const std::int32_t id : sample.input_ids)
    if (id < 0) fail(ErrorKind::input, {.cause = "input_ids holds " + std::to_string(id) + ", which is no token id"});
  for (const std::int32_t label : sample.labels)
    if (label < 0 && label != kNoTarget)
      fail(ErrorKind::input,
           {.cause = "labels holds " + std::to_string(label), .remedy = "A label is a token id, or -100 for none."});
  EncodedRow row;
  row.document_starts = starts_of(sample.position_ids);
  const bool labelled = !sample.labels.empty();
  row.labels = labelled ? std::move(sample.labels) : sample.input_ids;
  row.input_ids = std::move(sample.input_ids);
  if (labelled) return row;  // as they are
  mask_where_not(row.labels, sample.assistant_mask);
  if (completion_only_.value_or(false)) mask_where_not(row.labels, sample.completion_mask);
  return row;
}

/// Special tokens as the tokenizer adds them, but a BOS or EOS that the text itself has is not doubled.
std::vector<std::int32_t> RowEncoder::tokens_of(const std::string& text) const {
  const SpecialTokens& special = tools_.tokenizer.special();
  std::vector<std::int32_t> ids = tools_.tokenizer.encode(text, {.add_special = true});
  const auto twice = [&](std::size_t at, std::optional<std::int32_t> id) {
    return id && ids[at] == *id && ids[at + 1] == *id;
  };
  if (special.add_bos && ids.size() >= 2 && twice(0, special.bos_id)) ids.erase(ids.begin());
  if (special.add_eos && ids.size() >= 2 && twice(ids.size() - 2, special.eos_id)) ids.pop_back();
  return ids;
}

std::vector<std::int32_t> RowEncoder::tokens_with_eos(const std::string& prompt, const std::string& answer) const {
  const std::string text = prompt + answer;
  if (!append_eos_ || eos_.empty()) return tokens_of(text);
  const std::string body = answer.ends_with(eos_) ? text.substr(0, text.size() - eos_.size()) : text;
  if (tools_.tokenizer.special().add_eos) return tokens_of(body);
  const std::int32_t eos = *tools_.tokenizer.special().eos_id;
  std::vector<std::int32_t> ids = tokens_of(body + eos_);
  if (!ids.empty() && ids.back() == eos) return ids;
  ids = tokens_of(body);  // the tokenizer finds no special tokens in text (sentencepiece): append the id itself
  ids.push_back(eos);
  return ids;
}

EncodedRow RowEncoder::encode_text(const Sample& sample) const {
  EncodedRow row{.input_ids = tokens_with_eos("", sample.text)};
  row.labels = row.input_ids;
  return row;
}

EncodedRow RowEncoder::encode_text_pair(const Sample& sample) const {
  EncodedRow row{.input_ids = tokens_with_eos(sample.prompt, sample.text)};
  row.labels = row.input_ids;
  apply_prompt_mask(row, tokens_of(sample.prompt));
  return row;
}

/// The completion begins where the tokens of the prompt alone and of the whole row part.
void RowEncoder::apply_prompt_mask(EncodedRow& row, const std::vector<std::int32_t>& prompt) const {
  const std::size_t shared = common_prefix(prompt, row.input_ids);
  row.prompt_mismatch = shared < prompt.size();
  if (completion_only_.value_or(true)) std::fill_n(row.labels.begin(), shared, kNoTarget);
}

EncodedRow RowEncoder::encode_chat(const Sample& sample) const {
  const ChatTemplate* chat = tools_.chat_template;
  if (chat == nullptr)
    fail(ErrorKind::input, {.cause = "the row holds messages, but the model folder has no chat template",
                            .remedy = "Put a chat_template.jinja into it, or name one with chat_template_path."});
  const bool pair = sample.form == RowForm::chat_pair;
  Json messages = sample.messages;
  if (pair) messages.insert(messages.end(), sample.completion.begin(), sample.completion.end());
  const RenderInput input{.messages = &messages, .tools = &sample.tools, .extra = &sample.template_kwargs};
  const Rendered rendered = assistant_only_ ? render_with_assistant_ranges(*chat, input) : chat->render(input);
  const Tokenizer::Encoding encoding = tools_.tokenizer.encode_with_offsets(rendered.text, {.add_special = false});

  EncodedRow row{.input_ids = encoding.ids, .labels = encoding.ids};
  if (assistant_only_) {
    const std::vector<bool> said = tokens_in(encoding, rendered.generated);
    if (has_assistant(messages) && std::find(said.begin(), said.end(), true) == said.end())
      fail(ErrorKind::input, {.cause = "assistant_only_loss is set, but the chat template marks nothing that the "
                                       "assistant says in this row",
                              .remedy = "Check the template's {% generation %} blocks."});
    mask_where_not(row.labels, said);
  }
  if (pair) {
    const RenderInput prompt{.messages = &sample.messages,
                             .tools = &sample.tools,
                             .add_generation_prompt = true,
                             .extra = &sample.template_kwargs};
    apply_prompt_mask(row, tools_.tokenizer.encode(chat->render(prompt).text, {.add_special = false}));
  }
  return row;
}

}  // namespace qtrain
