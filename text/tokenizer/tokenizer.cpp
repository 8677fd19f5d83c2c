#include "text/tokenizer/tokenizer.h"

#include <algorithm>

#include "text/tokenizer/unicode.h"

namespace qtrain {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // replaces bytes of an incomplete character
constexpr std::size_t kMaxHeldBack = 16;                   // number of ids
constexpr std::size_t kMaxBytes = 8;                       // number of ids for a complete character spelled in bytes

// Recognizes <0x0A>. Decoders may treat a run of these as a whole, so that a broken byte changes earlier characters.
bool is_byte_token(std::string_view token) {
  return token.size() == 6 && token.starts_with("<0x") && token.ends_with('>');
}

bool is_blank(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); i += utf8_at(text, i).size)
    if (!is_white_space(utf8_at(text, i).value)) return false;
  return true;
}

// What follows in `all` after the prefix it shares with `shown`, in whole characters.
std::string_view rest(std::string_view all, std::string_view shown) {
  const auto differs = std::mismatch(all.begin(), all.end(), shown.begin(), shown.end()).first;
  auto at = static_cast<std::size_t>(differs - all.begin());
  while (at > 0 && at < all.size() && (static_cast<unsigned char>(all[at]) & 0xC0) == 0x80) --at;
  return all.substr(at);
}

}  // namespace

// Decodes the token after itself, since decoders may strip blanks at the beginning of a text.
std::string token_bytes(const Tokenizer& tokenizer, std::int32_t id) {
  const std::int32_t twice[] = {id, id};
  std::string text = tokenizer.decode(twice);
  text.erase(0, tokenizer.decode(std::span(twice).first(1)).size());
  if (text.find(kReplacement) == std::string::npos) return text;
  const std::string token = tokenizer.token(id);
  if (is_byte_token(token)) return std::string(1, static_cast<char>(std::stoi(token.substr(3, 2), nullptr, 16)));
  std::string bytes;
  return raw_bytes(token, bytes) ? bytes : text;
}

// Decoders depend on neighbors (a leading space is removed, bytes join to characters), so the ids of the latest text
// are decoded again before the new ones: the first `context_` of ids_. Since all leading blanks may be removed, the
// context starts with the first `visible_` ids, which contain more than blanks, once there are any.
std::string StreamDecoder::push(std::int32_t id) {
  ids_.push_back(id);
  const std::size_t held = ids_.size() - context_;
  const std::string shown = tokenizer_.decode(std::span(ids_).first(context_), options_);
  const std::string all = tokenizer_.decode(ids_, options_);
  const bool unfinished = all.size() <= shown.size() || all.ends_with(kReplacement);
  if (unfinished && held < kMaxHeldBack) return {};
  if (held < kMaxBytes && is_byte_token(tokenizer_.token(id))) return {};
  std::string text(rest(all, shown));
  const std::size_t keep = is_blank(text) ? visible_ : 0;
  ids_.erase(ids_.begin() + static_cast<std::ptrdiff_t>(keep), ids_.begin() + static_cast<std::ptrdiff_t>(context_));
  context_ = ids_.size();
  visible_ = is_blank(text) ? visible_ : context_;
  return text;
}

std::string StreamDecoder::finish() {
  const std::string shown = tokenizer_.decode(std::span(ids_).first(context_), options_);
  const std::string all = tokenizer_.decode(ids_, options_);
  ids_.clear();
  context_ = visible_ = 0;
  return std::string(rest(all, shown));
}

}  // namespace qtrain
