#include "text/tokenizer/added_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "core/keyed_hash.h"
#include "text/tokenizer/unicode.h"

namespace qtrain {
namespace {

constexpr std::size_t kMaxCompared = 64;  // bytes; tokens of real models are shorter

// Start of the character that ends at `at`.
std::size_t char_before(std::string_view text, std::size_t at) {
  std::size_t begin = at - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return begin;
}

// Start of the white space that ends at `at`, but not before `least`.
std::size_t blanks_before(std::string_view text, std::size_t at, std::size_t least) {
  while (at > least) {
    const std::size_t begin = char_before(text, at);
    if (!is_white_space(utf8_at(text, begin).value)) break;
    at = begin;
  }
  return at;
}

// End of the white space that begins at `at`.
std::size_t blanks_behind(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const Utf8Char c = utf8_at(text, at);
    if (!is_white_space(c.value)) break;
    at += c.size;
  }
  return at;
}

bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) {
  const bool before = begin > 0 && is_word_char(utf8_at(text, char_before(text, begin)).value);
  const bool after = end < text.size() && is_word_char(utf8_at(text, end).value);
  return !before && !after;
}

}  // namespace

AddedToken parse_added_token(const JsonView& json) {
  AddedToken t;
  t.content = json.at("content").text();
  t.special = json.flag("special", false);
  t.normalized = json.flag("normalized", !t.special);
  t.single_word = json.flag("single_word", false);
  t.lstrip = json.flag("lstrip", false);
  t.rstrip = json.flag("rstrip", false);
  return t;
}

void require_distinct_ids(const std::vector<AddedToken>& tokens) {
  std::unordered_map<std::int32_t, const AddedToken*, KeyedHash> by_id;
  for (const AddedToken& t : tokens) {
    const auto [other, is_new] = by_id.emplace(t.id, &t);
    if (is_new || t.id < 0 || other->second->content == t.content) continue;
    fail(ErrorKind::input, {.cause = fmt::format("the added tokens \"{}\" and \"{}\" share the id {}",
                                                 other->second->content, t.content, t.id),
                            .remedy = "download the tokenizer files again"});
  }
}

AddedTokenFinder::AddedTokenFinder(std::vector<Entry> entries) : entries_(std::move(entries)) {
  std::erase_if(entries_, [](const Entry& e) { return e.content.empty(); });
  const auto before = [](const Entry& a, const Entry& b) { return a.content < b.content; };
  const auto same = [](const Entry& a, const Entry& b) { return a.content == b.content; };
  std::stable_sort(entries_.begin(), entries_.end(), before);
  entries_.erase(std::unique(entries_.begin(), entries_.end(), same), entries_.end());
  const auto is_short = [](const Entry& e) { return e.content.size() <= kMaxCompared; };
  const auto longs = std::stable_partition(entries_.begin(), entries_.end(), is_short);
  long_entries_.assign(longs, entries_.end());
  entries_.erase(longs, entries_.end());
  for (std::size_t i = 0; i < long_entries_.size(); ++i)
    long_tokens_.add(long_entries_[i].content, static_cast<std::int32_t>(i));
  long_tokens_.finish();
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const std::string_view content = entries_[i].content;
    Bucket& bucket = buckets_[static_cast<unsigned char>(content.front())];
    if (bucket.end == 0) bucket.begin = i;
    bucket.end = i + 1;
    if (content.size() == 1)
      bucket.second.set();
    else
      bucket.second.set(static_cast<unsigned char>(content[1]));
  }
}

// Entries that match the text so far form one range in sorted order, which each further byte narrows.
const AddedTokenFinder::Entry* AddedTokenFinder::longest_at(std::string_view text, std::size_t at) const {
  const Bucket& bucket = buckets_[static_cast<unsigned char>(text[at])];
  if (bucket.end == 0 || (at + 1 < text.size() && !bucket.second[static_cast<unsigned char>(text[at + 1])]))
    return nullptr;
  const Entry* longest = nullptr;
  const Entry *first = entries_.data() + bucket.begin, *last = entries_.data() + bucket.end;
  for (std::size_t size = 1; first != last; ++size) {
    if (last - first == 1) return text.substr(at).starts_with(first->content) ? first : longest;
    if (first->content.size() == size) longest = first++;
    if (at + size == text.size()) break;
    const auto wanted = static_cast<unsigned char>(text[at + size]);
    const auto byte = [&](const Entry& e) { return static_cast<unsigned char>(e.content[size]); };
    first = std::partition_point(first, last, [&](const Entry& e) { return byte(e) < wanted; });
    last = std::partition_point(first, last, [&](const Entry& e) { return byte(e) == wanted; });
  }
  return longest;
}

// Like the library, searches blanks taken by rstrip again, so that a token among them is found too.
std::vector<AddedMatch> AddedTokenFinder::find(std::string_view text) const {
  std::vector<AddedMatch> found;
  if (empty()) return found;
  std::vector<std::int32_t> longs;
  if (!long_entries_.empty()) longs = long_tokens_.find(text);
  std::size_t last = 0, blanks_end = 0;  // the latter of white space that was looked at
  for (std::size_t at = 0; at < text.size();) {
    const bool is_long = !longs.empty() && longs[at] >= 0;
    const Entry* e = is_long ? &long_entries_[static_cast<std::size_t>(longs[at])] : longest_at(text, at);
    if (!e) {
      ++at;
      continue;
    }
    std::size_t begin = at, end = at + e->content.size();
    at = end;
    if (e->token->single_word && !stands_alone(text, begin, end)) continue;
    if (e->token->lstrip) begin = std::max(blanks_before(text, begin, last), last);
    if (e->token->rstrip) end = blanks_end = end < blanks_end ? blanks_end : blanks_behind(text, end);
    found.push_back({begin, end, e->token->id});
    last = end;
  }
  return found;
}

}  // namespace qtrain
