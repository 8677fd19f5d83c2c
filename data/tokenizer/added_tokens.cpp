#include "data/tokenizer/added_tokens.h"

#include <algorithm>

#include "data/tokenizer/unicode.h"

namespace qtrain {
namespace {

// Where the character begins that ends at `at`.
std::size_t char_before(std::string_view text, std::size_t at) {
  std::size_t begin = at - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return begin;
}

// Where the white space begins that ends at `at`.
std::size_t blanks_before(std::string_view text, std::size_t at) {
  while (at > 0) {
    const std::size_t begin = char_before(text, at);
    if (!is_white_space(utf8_at(text, begin).value)) break;
    at = begin;
  }
  return at;
}

bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) {
  const bool before = begin > 0 && is_word_char(utf8_at(text, char_before(text, begin)).value);
  const bool after = end < text.size() && is_word_char(utf8_at(text, end).value);
  return !before && !after;
}

}  // namespace

AddedToken parse_added_token(const Json& json) {
  AddedToken t;
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
  Bucket& bucket = buckets_[static_cast<unsigned char>(content.front())];
  const auto longer = [&](std::uint32_t i) { return entries_[i].content.size() >= content.size(); };
  bucket.entries.insert(std::partition_point(bucket.entries.begin(), bucket.entries.end(), longer),
                        static_cast<std::uint32_t>(entries_.size()));
  if (content.size() == 1)
    bucket.second.set();
  else
    bucket.second.set(static_cast<unsigned char>(content[1]));
  entries_.push_back({content, token});
}

void AddedTokenFinder::remove(std::int32_t id) {
  for (std::uint32_t i = 0; i < entries_.size(); ++i)
    if (entries_[i].token.id == id) {
      auto& bucket = buckets_[static_cast<unsigned char>(entries_[i].content.front())].entries;
      bucket.erase(std::remove(bucket.begin(), bucket.end(), i), bucket.end());
    }
}

const AddedTokenFinder::Entry* AddedTokenFinder::longest_at(std::string_view text, std::size_t at) const {
  const Bucket& bucket = buckets_[static_cast<unsigned char>(text[at])];
  if (bucket.entries.empty() || (at + 1 < text.size() && !bucket.second[static_cast<unsigned char>(text[at + 1])]))
    return nullptr;
  for (const std::uint32_t i : bucket.entries)
    if (text.substr(at).starts_with(entries_[i].content)) return &entries_[i];
  return nullptr;
}

// Blanks that rstrip takes are searched again, as the library does: a token among them is found too.
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
    if (e->token.lstrip) begin = std::max(blanks_before(text, begin), last);
    if (e->token.rstrip)
      while (end < text.size() && is_white_space(utf8_at(text, end).value)) end += utf8_at(text, end).size;
    found.push_back({begin, end, e->token.id});
    last = end;
  }
  return found;
}

}  // namespace qtrain
