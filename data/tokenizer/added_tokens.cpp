#include "data/tokenizer/added_tokens.h"

#include <algorithm>

#include "data/tokenizer/unicode.h"

namespace qtrain {
namespace {

// The character that ends right before `at`.
char32_t char_before(std::string_view text, std::size_t at) {
  std::size_t begin = at - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return utf8_at(text, begin).value;
}

bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) {
  const bool before = begin > 0 && is_word_char(char_before(text, begin));
  const bool after = end < text.size() && is_word_char(utf8_at(text, end).value);
  return !before && !after;
}

}  // namespace

AddedToken parse_added_token(const Json& json) {
  AddedToken t;
  t.id = json.value("id", -1);
  t.content = json.at("content");
  t.special = json.value("special", false);
  t.normalized = json.value("normalized", !t.special);
  t.single_word = json.value("single_word", false);
  t.lstrip = json.value("lstrip", false);
  t.rstrip = json.value("rstrip", false);
  return t;
}

void AddedTokenFinder::add(const AddedToken& token, const std::string& content) {
  if (content.empty()) return;
  auto& bucket = by_first_byte_[static_cast<unsigned char>(content.front())];
  bucket.push_back(static_cast<std::uint32_t>(entries_.size()));
  entries_.push_back({content, token});
  std::stable_sort(bucket.begin(), bucket.end(), [&](std::uint32_t a, std::uint32_t b) { return entries_[a].content.size() > entries_[b].content.size(); });
}

const AddedTokenFinder::Entry* AddedTokenFinder::longest_at(std::string_view text, std::size_t at) const {
  for (const std::uint32_t i : by_first_byte_[static_cast<unsigned char>(text[at])])
    if (text.substr(at).starts_with(entries_[i].content)) return &entries_[i];
  return nullptr;
}

std::vector<AddedMatch> AddedTokenFinder::find(std::string_view text) const {
  std::vector<AddedMatch> found;
  if (empty()) return found;
  std::size_t last = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Entry* e = longest_at(text, at);
    if (!e) {
      ++at;
      continue;
    }
    std::size_t begin = at, end = at + e->content.size();
    at = end;
    if (e->token.single_word && !stands_alone(text, begin, end)) continue;
    if (e->token.lstrip)
      while (begin > last && is_white_space(char_before(text, begin)))
        do --begin;
        while (begin > last && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80);
    if (e->token.rstrip)
      while (end < text.size() && is_white_space(utf8_at(text, end).value)) end += utf8_at(text, end).size;
    found.push_back({begin, end, e->token.id});
    at = last = end;
  }
  return found;
}

}  // namespace qtrain
