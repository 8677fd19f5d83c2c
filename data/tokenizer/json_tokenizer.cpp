#include "data/tokenizer/json_tokenizer.h"

#include <algorithm>

#include "data/tokenizer/unicode.h"

namespace qtrain {
namespace {

constexpr std::size_t kMaxText = std::size_t{1} << 31;  // offsets are kept in 32 bits

Json part(const Json& json, const char* key) {
  return json.contains(key) ? json[key] : Json();
}

// Bytes stand for themselves where each has a token and no option speaks of unknown characters.
Alphabet alphabet_for(const Json& json) {
  const Json& model = json.at("model");
  for (const char* option : {"byte_fallback", "fuse_unk"})
    if (model.value(option, false)) return Alphabet::characters;
  return alphabet_of(part(json, "pre_tokenizer"));
}

// What is no UTF-8 becomes U+FFFD.
TrackedText valid_text(std::string_view given) {
  if (is_utf8(given)) return {.text = std::string(given)};
  const TrackedText raw{.text = std::string(given)};
  TrackedBuilder out(raw);
  for (std::size_t i = 0; i < given.size();) {
    const Utf8Char c = utf8_at(given, i);
    const std::size_t size = c.valid ? c.size : broken_size(given, i);
    if (c.valid)
      out.keep(i, i + size);
    else
      out.replace(i, i + size, "\xEF\xBF\xBD");
    i += size;
  }
  return out.take();
}

}  // namespace

JsonTokenizer::JsonTokenizer(const Json& json, const std::vector<AddedToken>& extra)
    : model_(make_token_model(json.at("model"), alphabet_for(json))),
      normalizer_(make_normalizer(part(json, "normalizer"))),
      pre_tokenizer_(make_pre_tokenizer(part(json, "pre_tokenizer"), alphabet_for(json))),
      decoder_(make_decoder(part(json, "decoder"))),
      frame_(make_special_frame(part(json, "post_processor"))),
      size_(model_->end_id()),
      next_id_(model_->count()) {
  for (const Json& t : part(json, "added_tokens")) add_token(parse_added_token(t));
  for (const AddedToken& t : extra)
    if (!t.by_name || !added_ids_.contains(t.content)) add_token(t);
}

// The library numbers tokens outside the vocabulary by their order; a token that comes again changes its attributes.
void JsonTokenizer::add_token(AddedToken t) {
  if (t.content.empty()) return;
  const auto known = id_of(t.content);
  t.id = known ? *known : next_id_++;
  size_ = std::max(size_, t.id + 1);
  TrackedText content{.text = t.content};
  if (t.normalized && normalizer_) normalizer_->apply(content);
  if (added_.contains(t.id)) {
    raw_finder_.remove(t.id);
    normalized_finder_.remove(t.id);
  }
  normalized_.erase(t.id);
  if (content.text != t.content) normalized_.emplace(t.id, content.text);
  (t.normalized ? normalized_finder_ : raw_finder_).add(t, content.text);
  added_ids_.insert_or_assign(t.content, t.id);
  added_.insert_or_assign(t.id, std::move(t));
}

std::optional<std::int32_t> JsonTokenizer::id_of(std::string_view token) const {
  const auto it = added_ids_.find(std::string(token));
  return it != added_ids_.end() ? std::optional(it->second) : model_->id_of(token);
}

std::string JsonTokenizer::token(std::int32_t id) const {
  const auto it = added_.find(id);
  return it != added_.end() ? it->second.content : std::string(model_->token(id).value_or(""));
}

// What the decoder gets: as in the library, a token that is found in normalised text stands there normalised.
std::string JsonTokenizer::shown(std::int32_t id) const {
  const auto it = normalized_.find(id);
  return it != normalized_.end() ? it->second : token(id);
}

bool JsonTokenizer::is_special(std::int32_t id) const {
  const auto it = added_.find(id);
  return it != added_.end() && it->second.special;
}

void JsonTokenizer::encode_plain(TrackedText text, Encoding& out) const {
  if (text.text.empty()) return;
  PreTokens tokens{.text = std::move(text), .pieces = {}};
  tokens.pieces.push_back({0, tokens.text.text.size()});
  if (pre_tokenizer_) pre_tokenizer_->apply(tokens);
  std::vector<PieceToken> ids;
  for (const Piece& p : tokens.pieces) {
    ids.clear();
    model_->encode(std::string_view(tokens.text.text).substr(p.begin, p.end - p.begin), ids);
    for (const PieceToken& t : ids) {
      out.ids.push_back(t.id);
      out.offsets.push_back(tokens.text.source_of(p.begin + t.begin, p.begin + t.end));
    }
  }
}

// Text between added tokens of the raw text: normalised, then searched for added tokens of the normalised text.
void JsonTokenizer::encode_text(TrackedText text, Encoding& out) const {
  if (text.text.empty()) return;
  if (normalizer_) normalizer_->apply(text);
  const std::vector<AddedMatch> found = normalized_finder_.find(text.text);
  if (found.empty()) return encode_plain(std::move(text), out);
  std::size_t last = 0;
  for (const AddedMatch& m : found) {
    if (m.begin > last) encode_plain(text.part(last, m.begin), out);
    out.ids.push_back(m.id);
    out.offsets.push_back(text.source_of(m.begin, m.end));
    last = m.end;
  }
  if (last < text.text.size()) encode_plain(text.part(last, text.text.size()), out);
}

void JsonTokenizer::add_frame(const std::vector<std::int32_t>& ids, std::size_t at, Encoding& out) {
  for (const std::int32_t id : ids) {
    out.ids.push_back(id);
    out.offsets.emplace_back(at, at);
  }
}

Tokenizer::Encoding JsonTokenizer::encode_with_offsets(std::string_view given, EncodeOptions options) const {
  if (given.size() > kMaxText) fail(ErrorKind::input, {.cause = "a text of more than 2 GiB cannot be tokenized"});
  TrackedText text = valid_text(given);
  Encoding out;
  if (options.add_special) add_frame(frame_.before, 0, out);
  const std::vector<AddedMatch> found = raw_finder_.find(text.text);
  std::size_t last = 0;
  for (const AddedMatch& m : found) {
    if (m.begin > last) encode_text(text.part(last, m.begin), out);
    out.ids.push_back(m.id);
    out.offsets.push_back(text.source_of(m.begin, m.end));
    last = m.end;
  }
  if (last < text.text.size()) encode_text(last == 0 ? std::move(text) : text.part(last, text.text.size()), out);
  if (options.add_special) add_frame(frame_.after, given.size(), out);
  return out;
}

std::vector<std::int32_t> JsonTokenizer::encode(std::string_view text, EncodeOptions options) const {
  return encode_with_offsets(text, options).ids;
}

std::string JsonTokenizer::decode(std::span<const std::int32_t> ids, DecodeOptions options) const {
  std::vector<std::string> tokens;
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= size_)
      fail(ErrorKind::input, {.cause = "token id " + std::to_string(id) + " is not in the vocabulary of " +
                                       std::to_string(size_) + " tokens"});
    const bool gap = !added_.contains(id) && !model_->token(id);
    if (!gap && !(options.skip_special && is_special(id))) tokens.push_back(shown(id));
  }
  if (decoder_) decoder_->apply(tokens);
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) text += (i > 0 && !decoder_ ? " " : "") + tokens[i];
  return text;
}

}  // namespace qtrain
