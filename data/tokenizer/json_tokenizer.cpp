#include "data/tokenizer/json_tokenizer.h"

#include <algorithm>

#include "data/tokenizer/unicode.h"

namespace qtrain {
namespace {

bool mentions(const Json& step, std::string_view type) {
  if (step.is_null()) return false;
  if (step.value("type", "") == type) return true;
  for (const char* list : {"pretokenizers", "decoders"})
    if (step.contains(list))
      for (const Json& inner : step[list])
        if (mentions(inner, type)) return true;
  return false;
}

Json part(const Json& json, const char* key) { return json.contains(key) ? json[key] : Json(); }

const Json& bpe_model(const Json& json) {
  const Json& model = json.at("model");
  const std::string type = model.value("type", "BPE");
  if (type != "BPE") fail(ErrorKind::input, {.cause = "tokenizer model \"" + type + "\" is not supported", .remedy = "supported: BPE"});
  return model;
}

TrackedText stretch(const TrackedText& text, std::size_t begin, std::size_t end) {
  TrackedText t{.text = text.text.substr(begin, end - begin), .source = {}, .base = text.base + begin};
  if (!text.source.empty()) {
    t.source.assign(text.source.begin() + static_cast<std::ptrdiff_t>(begin), text.source.begin() + static_cast<std::ptrdiff_t>(end));
    t.base = text.base;
  }
  return t;
}

}  // namespace

JsonTokenizer::JsonTokenizer(const Json& json, std::vector<AddedToken> extra)
    : model_(bpe_model(json), mentions(part(json, "pre_tokenizer"), "ByteLevel") ? Bpe::Alphabet::bytes : Bpe::Alphabet::characters),
      normalizer_(make_normalizer(part(json, "normalizer"))),
      pre_tokenizer_(make_pre_tokenizer(part(json, "pre_tokenizer"))),
      decoder_(make_decoder(part(json, "decoder"))),
      frame_(make_special_frame(part(json, "post_processor"))) {
  std::vector<AddedToken> tokens;
  for (const Json& t : part(json, "added_tokens")) tokens.push_back(parse_added_token(t));
  size_ = model_.size();
  add_tokens(std::move(tokens));
  add_tokens(std::move(extra));
}

void JsonTokenizer::add_tokens(std::vector<AddedToken> tokens) {
  for (AddedToken& t : tokens) {
    if (t.content.empty() || added_ids_.contains(t.content)) continue;
    if (const auto known = model_.id_of(t.content)) t.id = *known;
    if (t.id < 0) t.id = size_;
    size_ = std::max(size_, t.id + 1);
    TrackedText content{.text = t.content};
    if (t.normalized && normalizer_) normalizer_->apply(content);
    (t.normalized ? normalized_finder_ : raw_finder_).add(t, content.text);
    added_ids_.emplace(t.content, t.id);
    added_.emplace(t.id, std::move(t));
  }
}

std::optional<std::int32_t> JsonTokenizer::id_of(std::string_view token) const {
  const auto it = added_ids_.find(std::string(token));
  return it != added_ids_.end() ? std::optional(it->second) : model_.id_of(token);
}

std::string JsonTokenizer::token(std::int32_t id) const {
  const auto it = added_.find(id);
  if (it != added_.end()) return it->second.content;
  return id >= 0 && id < model_.size() ? model_.token(id) : "";
}

bool JsonTokenizer::is_special(std::int32_t id) const {
  const auto it = added_.find(id);
  return it != added_.end() && it->second.special;
}

void JsonTokenizer::encode_plain(TrackedText text, bool at_start, Encoding& out) const {
  if (text.text.empty()) return;
  PreTokens tokens{.text = std::move(text), .pieces = {}, .at_start = at_start};
  tokens.pieces.push_back({0, tokens.text.text.size()});
  if (pre_tokenizer_) pre_tokenizer_->apply(tokens);
  std::vector<PieceToken> ids;
  for (const Piece& p : tokens.pieces) {
    ids.clear();
    model_.encode(std::string_view(tokens.text.text).substr(p.begin, p.end - p.begin), ids);
    for (const PieceToken& t : ids) {
      out.ids.push_back(t.id);
      out.offsets.push_back(tokens.text.source_of(p.begin + t.begin, p.begin + t.end));
    }
  }
}

// Text between added tokens of the raw text: normalised, then searched for added tokens of the normalised text.
void JsonTokenizer::encode_text(TrackedText text, bool at_start, Encoding& out) const {
  if (normalizer_) normalizer_->apply(text);
  std::size_t last = 0;
  for (const AddedMatch& m : normalized_finder_.find(text.text)) {
    encode_plain(stretch(text, last, m.begin), at_start && last == 0, out);
    out.ids.push_back(m.id);
    out.offsets.push_back(text.source_of(m.begin, m.end));
    last = m.end;
  }
  encode_plain(last == 0 ? std::move(text) : stretch(text, last, text.text.size()), at_start && last == 0, out);
}

void JsonTokenizer::add_frame(const std::vector<std::int32_t>& ids, std::size_t at, Encoding& out) {
  for (const std::int32_t id : ids) {
    out.ids.push_back(id);
    out.offsets.emplace_back(at, at);
  }
}

Tokenizer::Encoding JsonTokenizer::encode_with_offsets(std::string_view given, EncodeOptions options) const {
  const std::string valid = utf8_lossy(given);
  const std::string_view text = valid.size() == given.size() ? given : std::string_view(valid);
  Encoding out;
  if (options.add_special) add_frame(frame_.before, 0, out);
  std::size_t last = 0;
  for (const AddedMatch& m : raw_finder_.find(text)) {
    encode_text({.text = std::string(text.substr(last, m.begin - last)), .source = {}, .base = last}, last == 0, out);
    out.ids.push_back(m.id);
    out.offsets.emplace_back(m.begin, m.end);
    last = m.end;
  }
  encode_text({.text = std::string(text.substr(last)), .source = {}, .base = last}, last == 0, out);
  if (options.add_special) add_frame(frame_.after, text.size(), out);
  return out;
}

std::vector<std::int32_t> JsonTokenizer::encode(std::string_view text, EncodeOptions options) const {
  return encode_with_offsets(text, options).ids;
}

std::string JsonTokenizer::decode(std::span<const std::int32_t> ids, DecodeOptions options) const {
  std::vector<std::string> tokens;
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= size_)
      fail(ErrorKind::input, {.cause = "token id " + std::to_string(id) + " is not in the vocabulary of " + std::to_string(size_)});
    if (!options.skip_special || !is_special(id)) tokens.push_back(token(id));
  }
  if (decoder_) decoder_->apply(tokens);
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) text += (i > 0 && !decoder_ ? " " : "") + tokens[i];
  return text;
}

}  // namespace qtrain
