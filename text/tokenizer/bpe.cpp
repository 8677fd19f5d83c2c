#include "text/tokenizer/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <queue>

#include "text/tokenizer/unicode.h"

namespace qtrain {
namespace {

constexpr std::size_t kShortWord = 40;  // symbols up to which scanning is faster than a heap
constexpr std::int32_t kNoRank = std::numeric_limits<std::int32_t>::max();
constexpr std::string_view kWordMark = "\xE2\x96\x81";  // U+2581, sentencepiece's space

std::vector<std::pair<std::string_view, std::int64_t>> bpe_entries(const Json& vocab) {
  if (!vocab.is_object()) refuse_model("\"vocab\" must be an object");
  std::vector<std::pair<std::string_view, std::int64_t>> entries;
  entries.reserve(vocab.size());
  for (const auto& [token, id] : vocab.get_ref<const Json::object_t&>()) {
    if (!id.is_number_integer()) refuse_model("the id of \"" + token + "\" is not an integer");
    entries.emplace_back(token, id.get<std::int64_t>());
  }
  return entries;
}

// A merge is "a b" or ["a", "b"].
std::pair<std::string_view, std::string_view> merge_pair(const Json& merge) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
    return {merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>()};
  if (!merge.is_string()) refuse_model("a merge must be a string or a pair");
  const std::string_view s = merge.get_ref<const std::string&>();
  const std::size_t space = s.find(' ');
  if (space == std::string::npos) refuse_model(fmt::format("the merge \"{}\" has no space", s));
  return {s.substr(0, space), s.substr(space + 1)};
}

}  // namespace

Bpe::Bpe(const JsonView& json, Alphabet alphabet)
    : alphabet_(alphabet), vocabulary_(bpe_entries(json.at("vocab").json())) {
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (!json.text(key, "").empty()) refuse_model(fmt::format("\"{}\" is not supported", key));
  if (json.number("dropout", 0) != 0) refuse_model("dropout of merges is not supported");
  byte_fallback_ = json.flag("byte_fallback", false);
  fuse_unk_ = json.flag("fuse_unk", false);
  ignore_merges_ = json.flag("ignore_merges", false);
  read_texts();
  read_merges(json.at("merges").json());
  if (const std::string unknown = json.text("unk_token", ""); !unknown.empty()) {
    unk_ = vocabulary_.find(unknown);
    if (unk_ < 0) refuse_model("the unk_token is not in the vocabulary");
  }
  cut_words_ =
      alphabet_ == Alphabet::characters && !ignore_merges_ && by_text_.find(kWordMark) >= 0 && merges_keep_words();
  whole_ = std::make_unique<std::atomic<std::uint8_t>[]>(static_cast<std::size_t>(end_id()));
  cache_ = std::make_unique<WordCache>();
}

void Bpe::read_texts() {
  byte_ids_.fill(-1);
  by_text_ = StringIds(static_cast<std::size_t>(count()));
  for (std::int32_t id = 0; id < end_id(); ++id) {
    const auto token = vocabulary_.token(id);
    if (!token) continue;
    std::string text;
    if (alphabet_ == Alphabet::characters)
      text = *token;
    else if (!raw_bytes(*token, text))
      continue;  // merges cannot produce it
    by_text_.insert(text, vocabulary_.find(*token));
    if (alphabet_ == Alphabet::bytes && text.size() == 1) byte_ids_[static_cast<unsigned char>(text[0])] = id;
  }
  if (alphabet_ == Alphabet::bytes || !byte_fallback_) return;
  for (std::size_t b = 0; b < 256; ++b) byte_ids_[b] = vocabulary_.find_byte(static_cast<unsigned char>(b));
}

void Bpe::read_merges(const Json& merges) {
  if (!merges.is_array()) refuse_model("\"merges\" must be a list");
  merges_ = PairTable(merges.size());
  std::int32_t rank = 0;
  std::string joined;
  for (const Json& merge : merges) {
    const auto [left, right] = merge_pair(merge);
    joined.assign(left).append(right);
    const std::int32_t l = vocabulary_.find(left), r = vocabulary_.find(right), both = vocabulary_.find(joined);
    if (l < 0 || r < 0 || both < 0)
      refuse_model(fmt::format("the merge \"{} {}\" uses a token that is not in the vocabulary", left, right));
    merges_(l, r) = {rank++, both};
  }
}

// Whether no merge joins anything with a following word mark; if so, text without a pre-tokenizer splits into words.
bool Bpe::merges_keep_words() const {
  bool keep = true;
  merges_.each([&](std::int32_t left, std::int32_t right) {
    keep = keep && (!vocabulary_.token(right)->starts_with(kWordMark) || vocabulary_.token(left)->ends_with(kWordMark));
  });
  return keep;
}

std::optional<std::int32_t> Bpe::id_of(std::string_view token) const {
  const std::int32_t id = vocabulary_.find(token);
  return id < 0 ? std::nullopt : std::optional(id);
}

void Bpe::append_byte_symbols(std::string_view word, std::vector<PieceToken>& out) const {
  for (std::uint32_t i = 0; i < word.size(); ++i) {
    const std::int32_t id = byte_ids_[static_cast<unsigned char>(word[i])];
    if (id >= 0 || unk_ >= 0) out.push_back({id >= 0 ? id : unk_, i, i + 1});
  }
}

// Emits characters that are tokens, otherwise their bytes with byte_fallback, otherwise unk. Like the library, delays
// an unk until the next known character, so that bytes may come before it; byte tokens cover the whole character.
void Bpe::append_symbols(std::string_view word, std::vector<PieceToken>& out) const {
  if (alphabet_ == Alphabet::bytes) return append_byte_symbols(word, out);
  std::optional<PieceToken> waiting;
  const auto flush = [&] {
    if (waiting) out.push_back(*waiting);
    waiting.reset();
  };
  for (std::uint32_t begin = 0, end; begin < word.size(); begin = end) {
    end = begin + static_cast<std::uint32_t>(utf8_at(word, begin).size);
    const std::string_view bytes = word.substr(begin, end - begin);
    const std::int32_t id = by_text_.find(bytes);
    const auto byte_id = [&](char c) { return byte_ids_[static_cast<unsigned char>(c)]; };
    if (id >= 0) {
      flush();
      out.push_back({id, begin, end});
    } else if (byte_fallback_ && std::all_of(bytes.begin(), bytes.end(), [&](char c) { return byte_id(c) >= 0; })) {
      for (const char c : bytes) out.push_back({byte_id(c), begin, end});
    } else if (unk_ >= 0 && waiting && fuse_unk_) {
      waiting->end = end;
    } else if (unk_ >= 0) {
      flush();
      waiting = {unk_, begin, end};
    }
  }
  flush();
}

// Merges the lowest rank first, leftmost among equals.
void Bpe::merge_short(std::vector<PieceToken>& tokens, std::size_t first) const {
  PieceToken* const t = tokens.data() + first;
  std::size_t n = tokens.size() - first;
  std::array<PairTable::Value, kShortWord> pair;  // for symbol i and the next: rank, merged token
  const auto look_up = [&](std::size_t i) {
    const PairTable::Value* v = merges_.find(t[i].id, t[i + 1].id);
    pair[i] = v ? *v : PairTable::Value{kNoRank, -1};
  };
  for (std::size_t i = 0; i + 1 < n; ++i) look_up(i);
  while (n > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < n; ++i)
      if (pair[i].first < pair[best].first) best = i;
    if (pair[best].first == kNoRank) break;
    t[best] = {pair[best].second, t[best].begin, t[best + 1].end};
    --n;
    for (std::size_t i = best + 1; i < n; ++i) {
      t[i] = t[i + 1];
      pair[i - 1] = pair[i];
    }
    if (best + 1 < n) look_up(best);
    if (best > 0) look_up(best - 1);
  }
  tokens.resize(first + n);
}

// The same with a heap over a linked list. Merged symbols get id -1; stale heap entries are recognized by their ids.
void Bpe::merge_long(std::vector<PieceToken>& tokens, std::size_t first) const {
  struct Candidate {
    std::int32_t rank, at, left, right;
    bool operator>(const Candidate& o) const { return rank != o.rank ? rank > o.rank : at > o.at; }
  };
  PieceToken* const t = tokens.data() + first;
  const auto n = static_cast<std::int32_t>(tokens.size() - first);
  std::vector<std::int32_t> previous(static_cast<std::size_t>(n)), next(static_cast<std::size_t>(n));
  std::vector<Candidate> storage;
  storage.reserve(static_cast<std::size_t>(n));
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap({}, std::move(storage));
  const auto offer = [&](std::int32_t at) {
    if (at < 0 || next[static_cast<std::size_t>(at)] >= n) return;
    const std::int32_t left = t[at].id, right = t[next[static_cast<std::size_t>(at)]].id;
    if (const PairTable::Value* m = merges_.find(left, right)) heap.push({m->first, at, left, right});
  };
  for (std::int32_t i = 0; i < n; ++i) {
    previous[static_cast<std::size_t>(i)] = i - 1;
    next[static_cast<std::size_t>(i)] = i + 1;
  }
  for (std::int32_t i = 0; i < n; ++i) offer(i);
  while (!heap.empty()) {
    const Candidate c = heap.top();
    heap.pop();
    std::int32_t& following = next[static_cast<std::size_t>(c.at)];
    if (t[c.at].id != c.left || following >= n || t[following].id != c.right) continue;
    t[c.at].id = merges_.find(c.left, c.right)->second;
    t[c.at].end = t[following].end;
    t[following].id = -1;
    following = next[static_cast<std::size_t>(following)];
    if (following < n) previous[static_cast<std::size_t>(following)] = c.at;
    offer(c.at);
    offer(previous[static_cast<std::size_t>(c.at)]);
  }
  const auto from = tokens.begin() + static_cast<std::ptrdiff_t>(first);
  tokens.erase(std::remove_if(from, tokens.end(), [](const PieceToken& s) { return s.id < 0; }), tokens.end());
}

void Bpe::append_merged(std::string_view word, std::vector<PieceToken>& out) const {
  const std::size_t first = out.size();
  append_symbols(word, out);
  if (out.size() - first <= kShortWord)
    merge_short(out, first);
  else
    merge_long(out, first);
}

bool Bpe::is_whole(std::string_view word, std::int32_t id) const {
  std::atomic<std::uint8_t>& state = whole_[static_cast<std::size_t>(id)];
  std::uint8_t known = state.load(std::memory_order_relaxed);
  if (known == 0) {
    std::vector<PieceToken> merged;
    append_merged(word, merged);
    known = merged.size() == 1 && merged.front().id == id ? 1 : 2;
    state.store(known, std::memory_order_relaxed);
  }
  return known == 1;
}

void Bpe::append_word(std::string_view word, std::vector<PieceToken>& out) const {
  const std::uint64_t hash = by_text_.hash(word);
  const std::int32_t id = by_text_.find(word, hash);
  if (id >= 0 && (ignore_merges_ || is_whole(word, id)))
    return out.push_back({id, 0, static_cast<std::uint32_t>(word.size())});
  if (cache_->find(word, hash, out)) return;
  const std::size_t first = out.size();
  append_merged(word, out);
  cache_->put(word, hash, out.data() + first, out.size() - first);
}

void Bpe::encode(std::string_view piece, std::vector<PieceToken>& out) const {
  if (piece.empty()) return;
  if (!cut_words_) return append_word(piece, out);
  for (std::size_t begin = 0, end; begin < piece.size(); begin = end) {
    end = begin;
    while (piece.substr(end).starts_with(kWordMark)) end += kWordMark.size();
    end = std::min(piece.find(kWordMark, end), piece.size());
    const std::size_t first = out.size();
    append_word(piece.substr(begin, end - begin), out);
    for (std::size_t i = first; begin > 0 && i < out.size(); ++i) {
      out[i].begin += static_cast<std::uint32_t>(begin);
      out[i].end += static_cast<std::uint32_t>(begin);
    }
  }
}

}  // namespace qtrain
