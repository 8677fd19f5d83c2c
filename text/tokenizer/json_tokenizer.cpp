#include "text/tokenizer/json_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/tokenizer/unicode.h"

namespace qtrain {
namespace {

constexpr std::size_t kMaxText = std::size_t{1} << 31;  // offsets are 32-bit
constexpr std::size_t kMaxSteps = 128;                  // of a sequence, since each of them reads every text
constexpr std::size_t kMaxFrame = 1024;                 // tokens around every text, and items of a template

std::int32_t token_id(const JsonView& json) {
  return static_cast<std::int32_t>(json.integer({0, kMaxTokenId}));
}

// Counts the steps of nested sequences.
std::size_t count_steps(const Json& step, const char* list) {
  if (!step.is_object()) return 1;
  const auto inner = step.find(list);
  if (inner == step.end() || !inner->is_array()) return 1;
  std::size_t count = 0;
  for (const Json& one : *inner) count += count_steps(one, list);
  return count;
}

/// The part of a tokenizer.json with this name, whose sequences have the member `list`.
JsonView few_steps(const JsonView& json, const char* list) {
  if (const std::size_t steps = count_steps(json.json(), list); steps > kMaxSteps)
    json.refuse(fmt::format("has {} steps; up to {} are supported", steps, kMaxSteps));
  return json;
}

void require_short(const JsonView& json, std::size_t frame) {
  if (frame > kMaxFrame) json.refuse(fmt::format("adds more than {} tokens to every text", kMaxFrame));
}

SpecialFrame read_template(const JsonView& json) {
  SpecialFrame frame;
  bool seen = false;
  const JsonView items = json.at("single");
  require_short(json, items.size());
  items.each([&](const JsonView& item) {
    if (item.find("Sequence")) {
      if (seen) item.refuse("a template that repeats the text is not supported");
      seen = true;
      return;
    }
    const std::string& name = item.at("SpecialToken").at("id").text();
    const JsonView ids = json.at("special_tokens").at(name).at("ids");
    require_short(json, ids.size() + frame.before.size() + frame.after.size());
    ids.each([&](const JsonView& id) { (seen ? frame.after : frame.before).push_back(token_id(id)); });
  });
  return frame;
}

// Format: ["[SEP]", 102]
std::vector<std::int32_t> one_token(const JsonView& pair) {
  return {token_id(pair.entry(1))};
}

/// From the `post_processor` of a tokenizer.json: TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel
/// (which adds nothing) and sequences of them. Throws ErrorKind::input for unknown types.
SpecialFrame make_special_frame(const JsonView& json) {
  if (json.is_null()) return {};
  const std::string& type = json.at("type").text();
  if (type == "ByteLevel") return {};
  if (type == "TemplateProcessing") return read_template(json);
  if (type == "BertProcessing" || type == "RobertaProcessing")
    return {.before = one_token(json.at("cls")), .after = one_token(json.at("sep"))};
  if (type != "Sequence")
    fail(ErrorKind::input, {.cause = "post-processor \"" + type + "\" is not supported",
                            .remedy = "supported: TemplateProcessing, ByteLevel, BertProcessing, RobertaProcessing, "
                                      "Sequence"});
  SpecialFrame all;
  json.at("processors").each([&](const JsonView& step) {
    const SpecialFrame one = make_special_frame(step);
    all.before.insert(all.before.begin(), one.before.begin(), one.before.end());
    all.after.insert(all.after.end(), one.after.begin(), one.after.end());
    require_short(json, all.before.size() + all.after.size());
  });
  return all;
}

JsonView part(const JsonView& json, const char* key) {
  static const Json none;
  return json.find(key).value_or(JsonView(none, key));
}

// Uses bytes if every byte has a token and no option concerns unknown characters.
Alphabet alphabet_for(const JsonView& json) {
  const JsonView model = json.at("model");
  for (const char* option : {"byte_fallback", "fuse_unk"})
    if (model.flag(option, false)) return Alphabet::characters;
  return alphabet_of(part(json, "pre_tokenizer"));
}

// Replaces invalid UTF-8 by U+FFFD.
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

std::size_t total_size(const std::vector<AddedToken>& tokens) {
  std::size_t size = 0;
  for (const AddedToken& t : tokens) size += t.content.size();
  return size;
}

}  // namespace

JsonTokenizer::JsonTokenizer(const JsonView& json, std::vector<AddedToken> listed, const std::vector<AddedToken>& extra)
    : model_(make_token_model(json.at("model"), alphabet_for(json))),
      normalizer_(make_normalizer(few_steps(part(json, "normalizer"), "normalizers"))),
      pre_tokenizer_(make_pre_tokenizer(few_steps(part(json, "pre_tokenizer"), "pretokenizers"), alphabet_for(json))),
      decoder_(make_decoder(few_steps(part(json, "decoder"), "decoders"))),
      frame_(make_special_frame(few_steps(part(json, "post_processor"), "processors"))),
      added_ids_(listed.size()),
      added_growth_(total_size(listed) + total_size(extra)),
      size_(model_->end_id()),
      next_id_(model_->count()) {
  added_.reserve(listed.size());
  for (const AddedToken& t : listed) require_free(t.id, t.content);
  for (AddedToken& t : listed) add_token(std::move(t));
  for (const AddedToken& t : extra)
    if (!t.by_name || added_ids_.find(t.content) < 0) add_token(t);
  make_finders();
}

// The library numbers tokens outside the vocabulary in order; a repeated token updates its attributes.
void JsonTokenizer::add_token(AddedToken t) {
  if (t.content.empty()) return;
  const auto known = id_of(t.content);
  if (!known) require_free(next_id_, t.content);
  t.id = known ? *known : next_id_++;
  size_ = std::max(size_, t.id + 1);
  added_with_.resize(static_cast<std::size_t>(size_), -1);
  normalized_.erase(t.id);
  if (t.normalized && normalizer_) {
    TrackedText content{.text = t.content, .growth = &added_growth_};
    normalizer_->apply(content);
    if (content.text != t.content) normalized_.emplace(t.id, content.text);
  }
  std::int32_t& with = added_with_[static_cast<std::size_t>(t.id)];
  if (with >= 0) added_[static_cast<std::size_t>(with)].content.clear();
  with = static_cast<std::int32_t>(added_.size());
  added_ids_.insert(t.content, t.id);
  added_.push_back(std::move(t));
}

void JsonTokenizer::require_free(std::int32_t id, const std::string& content) const {
  const auto taken = model_->token(id);
  if (!taken || *taken == content) return;
  fail(ErrorKind::input, {.cause = fmt::format("\"{}\" and \"{}\" share the id {}", *taken, content, id),
                          .place = "added_tokens",
                          .remedy = "download the tokenizer files again"});
}

void JsonTokenizer::split_special_tokens() {
  splits_special_ = true;
  make_finders();
}

void JsonTokenizer::make_finders() {
  std::vector<AddedTokenFinder::Entry> raw, normalized;
  for (const AddedToken& t : added_) {
    const auto changed = normalized_.find(t.id);
    if (t.content.empty() || (splits_special_ && t.special)) continue;
    const std::string_view content = changed != normalized_.end() ? changed->second : t.content;
    (t.normalized ? normalized : raw).push_back({content, &t});
  }
  raw_finder_ = AddedTokenFinder(std::move(raw));
  normalized_finder_ = AddedTokenFinder(std::move(normalized));
}

const AddedToken* JsonTokenizer::added(std::int32_t id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= added_with_.size()) return nullptr;
  const std::int32_t with = added_with_[static_cast<std::size_t>(id)];
  return with < 0 ? nullptr : &added_[static_cast<std::size_t>(with)];
}

std::optional<std::int32_t> JsonTokenizer::id_of(std::string_view token) const {
  const std::int32_t id = added_ids_.find(token);
  return id >= 0 ? std::optional(id) : model_->id_of(token);
}

std::string JsonTokenizer::token(std::int32_t id) const {
  const AddedToken* t = added(id);
  return t ? t->content : std::string(model_->token(id).value_or(""));
}

// The text given to the decoder: like the library, a token found in normalized text is normalized.
std::string JsonTokenizer::shown(std::int32_t id) const {
  const auto it = normalized_.find(id);
  return it != normalized_.end() ? it->second : token(id);
}

bool JsonTokenizer::is_special(std::int32_t id) const {
  const AddedToken* t = added(id);
  return t && t->special;
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

// Text between added tokens of the raw text: normalizes it, then searches it for added tokens of the normalized text.
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
  if (given.size() > kMaxText) fail(ErrorKind::input, {.cause = "a text over 2 GiB cannot be tokenized"});
  TrackedText text = valid_text(given);
  TextGrowth growth(given.size());
  text.growth = &growth;
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
    const bool gap = id < 0 || id >= size_ || (!added(id) && !model_->token(id));
    if (!gap && !(options.skip_special && is_special(id))) tokens.push_back(shown(id));
  }
  if (decoder_) decoder_->apply(tokens);
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) text += (i > 0 && !decoder_ ? " " : "") + tokens[i];
  return text;
}

}  // namespace qtrain
