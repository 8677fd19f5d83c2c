#include "data/tokenizer/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <queue>

#include "data/tokenizer/unicode.h"

namespace qtrain {
namespace {

[[noreturn]] void refuse(const std::string& cause) { fail(ErrorKind::input, {.cause = cause, .place = "model"}); }

// "Ġthe" -> " the"; none if a character stands for no byte (an added token in the vocabulary).
std::optional<std::string> raw_bytes(std::string_view printable) {
  std::string out;
  for (std::size_t i = 0; i < printable.size();) {
    const Utf8Char c = utf8_at(printable, i);
    const int byte = byte_of_printable(c.value);
    if (byte < 0) return std::nullopt;
    out += static_cast<char>(byte);
    i += c.size;
  }
  return out;
}

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

bool non_empty(const Json& json, const char* key) {
  return json.contains(key) && json[key].is_string() && !json[key].get_ref<const std::string&>().empty();
}

// A merge as "a b" or ["a", "b"].
std::pair<std::string, std::string> merge_pair(const Json& merge) {
  if (merge.is_array() && merge.size() == 2) return {merge[0], merge[1]};
  if (!merge.is_string()) refuse("a merge must be a string or a pair");
  const auto& s = merge.get_ref<const std::string&>();
  const std::size_t space = s.find(' ');
  if (space == std::string::npos) refuse("the merge \"" + s + "\" has no space");
  return {s.substr(0, space), s.substr(space + 1)};
}

}  // namespace

Bpe::Bpe(const Json& json, Alphabet alphabet) : alphabet_(alphabet) {
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (non_empty(json, key)) refuse(fmt::format("\"{}\" is not supported", key));
  byte_fallback_ = json.value("byte_fallback", false);
  fuse_unk_ = json.value("fuse_unk", false);
  ignore_merges_ = json.value("ignore_merges", false);
  read_vocab(json.at("vocab"));
  read_merges(json.at("merges"));
  if (non_empty(json, "unk_token")) {
    unk_ = id_of(json["unk_token"].get<std::string>());
    if (!unk_) refuse("the unk_token is not in the vocabulary");
  }
  whole_ = std::make_unique<std::atomic<std::uint8_t>[]>(tokens_.size());
}

void Bpe::read_vocab(const Json& vocab) {
  if (!vocab.is_object() || vocab.empty()) refuse("the vocabulary is empty");
  by_name_.reserve(vocab.size());
  by_text_.reserve(vocab.size());
  std::int64_t highest = 0;
  for (const auto& [token, id] : vocab.items()) {
    if (!id.is_number_integer() || id < 0 || id >= 1 << 24) refuse("the id of \"" + token + "\" is out of range");
    highest = std::max(highest, id.get<std::int64_t>());
    by_name_.emplace(token, id.get<std::int32_t>());
  }
  tokens_.resize(static_cast<std::size_t>(highest) + 1);
  byte_ids_.assign(256, -1);
  for (const auto& [token, id] : by_name_) {
    tokens_[static_cast<std::size_t>(id)] = token;
    const auto text = alphabet_ == Alphabet::bytes ? raw_bytes(token) : std::optional(token);
    if (!text) continue;
    by_text_.emplace(*text, id);
    if (alphabet_ == Alphabet::bytes && text->size() == 1) byte_ids_[static_cast<unsigned char>(text->front())] = id;
  }
  if (alphabet_ == Alphabet::bytes || !byte_fallback_) return;
  for (int b = 0; b < 256; ++b)
    if (const auto it = by_name_.find(fmt::format("<0x{:02X}>", b)); it != by_name_.end()) byte_ids_[static_cast<std::size_t>(b)] = it->second;
}

void Bpe::read_merges(const Json& merges) {
  merges_.reserve(merges.size());
  std::int32_t rank = 0;
  for (const Json& merge : merges) {
    const auto [left, right] = merge_pair(merge);
    const auto l = by_name_.find(left), r = by_name_.find(right), both = by_name_.find(left + right);
    if (l == by_name_.end() || r == by_name_.end() || both == by_name_.end())
      refuse(fmt::format("the merge \"{} {}\" names a token that is not in the vocabulary", left, right));
    merges_.insert_or_assign(pair_key(l->second, r->second), Merge{rank++, both->second});
  }
}

std::optional<std::int32_t> Bpe::id_of(std::string_view token) const {
  const auto it = by_name_.find(std::string(token));
  return it == by_name_.end() ? std::nullopt : std::optional(it->second);
}

const Bpe::Merge* Bpe::find_merge(std::int32_t left, std::int32_t right) const {
  const auto it = merges_.find(pair_key(left, right));
  return it == merges_.end() ? nullptr : &it->second;
}

void Bpe::add_character(std::string_view piece, std::size_t begin, std::size_t size, std::vector<Symbol>& out) const {
  const auto push = [&](std::int32_t id, std::size_t from, std::size_t to) {
    out.push_back({.id = id, .previous = -1, .next = -1, .begin = static_cast<std::uint32_t>(from), .end = static_cast<std::uint32_t>(to)});
  };
  const auto it = by_text_.find(std::string(piece.substr(begin, size)));
  if (it != by_text_.end()) return push(it->second, begin, begin + size);
  const auto byte_id = [&](std::size_t i) { return byte_ids_[static_cast<unsigned char>(piece[i])]; };
  bool all_bytes = byte_fallback_;
  for (std::size_t i = begin; i < begin + size; ++i) all_bytes = all_bytes && byte_id(i) >= 0;
  if (all_bytes) {
    // Every byte token reports the whole character, as the library's offsets do.
    for (std::size_t i = begin; i < begin + size; ++i) push(byte_id(i), begin, begin + size);
    return;
  }
  if (!unk_) return;
  if (fuse_unk_ && !out.empty() && out.back().id == *unk_) out.back().end = static_cast<std::uint32_t>(begin + size);
  else push(*unk_, begin, begin + size);
}

std::vector<Bpe::Symbol> Bpe::symbols_of(std::string_view piece) const {
  std::vector<Symbol> symbols;
  symbols.reserve(piece.size());
  if (alphabet_ == Alphabet::bytes) {
    for (std::size_t i = 0; i < piece.size(); ++i) {
      const std::int32_t id = byte_ids_[static_cast<unsigned char>(piece[i])];
      if (id >= 0) symbols.push_back({id, -1, -1, static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i + 1)});
      else if (unk_) symbols.push_back({*unk_, -1, -1, static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i + 1)});
    }
  } else {
    for (std::size_t i = 0; i < piece.size();) {
      const std::size_t size = utf8_at(piece, i).size;
      add_character(piece, i, size, symbols);
      i += size;
    }
  }
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    symbols[i].previous = static_cast<std::int32_t>(i) - 1;
    symbols[i].next = i + 1 < symbols.size() ? static_cast<std::int32_t>(i + 1) : -1;
  }
  return symbols;
}

// Lowest rank first, leftmost among equals. Merged-away symbols get id -1; stale heap entries are recognised by ids.
void Bpe::merge_all(std::vector<Symbol>& s) const {
  struct Candidate {
    std::int32_t rank, at, left, right;
    bool operator>(const Candidate& o) const { return rank != o.rank ? rank > o.rank : at > o.at; }
  };
  std::vector<Candidate> storage;
  storage.reserve(2 * s.size());
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap({}, std::move(storage));
  const auto offer = [&](std::int32_t at) {
    if (at < 0 || s[static_cast<std::size_t>(at)].next < 0) return;
    const Symbol& left = s[static_cast<std::size_t>(at)];
    const Symbol& right = s[static_cast<std::size_t>(left.next)];
    if (const Merge* m = find_merge(left.id, right.id)) heap.push({m->rank, at, left.id, right.id});
  };
  for (std::size_t i = 0; i + 1 < s.size(); ++i) offer(static_cast<std::int32_t>(i));
  while (!heap.empty()) {
    const Candidate c = heap.top();
    heap.pop();
    Symbol& left = s[static_cast<std::size_t>(c.at)];
    if (left.id != c.left || left.next < 0 || s[static_cast<std::size_t>(left.next)].id != c.right) continue;
    Symbol& right = s[static_cast<std::size_t>(left.next)];
    left.id = find_merge(c.left, c.right)->id;
    left.end = right.end;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) s[static_cast<std::size_t>(left.next)].previous = c.at;
    offer(c.at);
    offer(left.previous);
  }
}

void Bpe::encode_by_merges(std::string_view piece, std::vector<PieceToken>& out) const {
  std::vector<Symbol> symbols = symbols_of(piece);
  merge_all(symbols);
  for (const Symbol& s : symbols)
    if (s.id >= 0) out.push_back({s.id, s.begin, s.end});
}

bool Bpe::is_whole(std::string_view piece, std::int32_t id) const {
  std::atomic<std::uint8_t>& state = whole_[static_cast<std::size_t>(id)];
  std::uint8_t known = state.load(std::memory_order_relaxed);
  if (known == 0) {
    std::vector<PieceToken> merged;
    encode_by_merges(piece, merged);
    known = merged.size() == 1 && merged.front().id == id ? 1 : 2;
    state.store(known, std::memory_order_relaxed);
  }
  return known == 1;
}

void Bpe::encode(std::string_view piece, std::vector<PieceToken>& out) const {
  const auto it = by_text_.find(std::string(piece));
  if (it != by_text_.end() && (ignore_merges_ || is_whole(piece, it->second)))
    return out.push_back({it->second, 0, static_cast<std::uint32_t>(piece.size())});
  encode_by_merges(piece, out);
}

}  // namespace qtrain
