#include "text/tokenizer/unigram.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "text/tokenizer/unicode.h"

namespace qtrain {
namespace {

constexpr double kUnknownPenalty = 10.0;

// Every position of a text may be compared with the longest token.
void require_short(std::string_view token) {
  if (token.size() > kMaxUnigramToken)
    refuse_model(
        fmt::format("a token of Unigram has {} bytes; up to {} are supported", token.size(), kMaxUnigramToken));
}

std::vector<std::pair<std::string_view, std::int64_t>> unigram_entries(const Json& vocab) {
  if (!vocab.is_array()) refuse_model("\"vocab\" must be a list");
  std::vector<std::pair<std::string_view, std::int64_t>> entries;
  entries.reserve(vocab.size());
  for (const Json& row : vocab) {
    if (!row.is_array() || row.size() != 2 || !row[0].is_string() || !row[1].is_number())
      refuse_model("an entry of \"vocab\" must be [token, score]");
    require_short(row[0].get_ref<const std::string&>());
    entries.emplace_back(row[0].get_ref<const std::string&>(), static_cast<std::int64_t>(entries.size()));
  }
  return entries;
}

double power_of_ten(int exponent) {
  return std::strtod(fmt::format("1e{}", exponent).c_str(), nullptr);
}

// The library rounds a decimal number twice: its digits, then their product or quotient with a power of ten. The last
// bit decides between paths of equal score. (Files contain the shortest digits of a double.)
double score_as_the_library_reads_it(double exact) {
  char text[32];
  const char* const end = std::to_chars(text, text + sizeof text, exact, std::chars_format::scientific).ptr;
  std::uint64_t digits = 0;
  int exponent = 0, behind_point = 0;
  bool point = false;
  for (const char* c = text; c != end; ++c) {
    if (*c == 'e') {
      std::from_chars(c[1] == '+' ? c + 2 : c + 1, end, exponent);
      break;
    }
    point = point || *c == '.';
    if (*c < '0' || *c > '9') continue;
    digits = 10 * digits + static_cast<std::uint64_t>(*c - '0');
    behind_point += point ? 1 : 0;
  }
  exponent -= behind_point;
  if (exponent < -308) return exact;
  const auto whole = static_cast<double>(digits);
  return std::copysign(exponent < 0 ? whole / power_of_ten(-exponent) : whole * power_of_ten(exponent), exact);
}

}  // namespace

Unigram::Unigram(const JsonView& json, Alphabet alphabet) : vocabulary_(unigram_entries(json.at("vocab").json())) {
  if (alphabet == Alphabet::bytes) refuse_model("Unigram over bytes is not supported");
  for (const Json& row : json.at("vocab").list())
    scores_.push_back(score_as_the_library_reads_it(row[1].get<double>()));
  unk_score_ = *std::min_element(scores_.begin(), scores_.end()) - kUnknownPenalty;
  byte_fallback_ = json.flag("byte_fallback", false);
  if (const auto unknown = json.find("unk_id"))
    unk_ = static_cast<std::int32_t>(unknown->integer({0, vocabulary_.end_id() - 1}));
  std::int32_t nodes = 1;
  for (std::int32_t id = 0; id < vocabulary_.end_id(); ++id) {
    PairTable::Value* at = nullptr;
    std::int32_t node = 0;
    const std::string_view token = vocabulary_.token(id).value_or("");
    for (const char c : token) {
      at = &trie_(node, static_cast<unsigned char>(c));
      if (at->first < 0) at->first = nodes++;
      node = at->first;
    }
    if (at) at->second = vocabulary_.find(token);
  }
}

std::optional<std::int32_t> Unigram::id_of(std::string_view token) const {
  const std::int32_t id = vocabulary_.find(token);
  return id < 0 ? std::nullopt : std::optional(id);
}

// best[e]: the best token that ends at byte e, and the score of the path to that point.
std::vector<Unigram::Node> Unigram::best_path(std::string_view piece) const {
  std::vector<Node> best(piece.size() + 1);
  const auto offer = [&](std::size_t begin, std::size_t end, std::int32_t id, double score) {
    const double path = best[begin].score + score;
    if (best[end].begin != kNowhere && path <= best[end].score) return;
    if (id < 0)
      fail(ErrorKind::input,
           {.cause = "the text has a character outside the vocabulary, and there is no unknown token"});
    best[end] = {path, id, static_cast<std::uint32_t>(begin)};
  };
  for (std::size_t begin = 0; begin < piece.size();) {
    const std::size_t character = utf8_at(piece, begin).size;
    bool single = false;
    std::int32_t node = 0;
    for (std::size_t end = begin; end < piece.size();) {
      const PairTable::Value* v = trie_.find(node, static_cast<unsigned char>(piece[end]));
      if (!v) break;
      node = v->first;
      ++end;
      if (v->second < 0) continue;
      offer(begin, end, v->second, scores_[static_cast<std::size_t>(v->second)]);
      single = single || end - begin == character;
    }
    if (!single) offer(begin, begin + character, unk_, unk_score_);
    begin += character;
  }
  return best;
}

// Consecutive unknown characters count as one token, which may be spelled in bytes.
void Unigram::append_run(std::string_view piece, PieceToken run, std::vector<PieceToken>& out) const {
  const std::string_view text = piece.substr(run.begin, run.end - run.begin);
  if (const std::int32_t id = vocabulary_.find(text); id >= 0) return out.push_back({id, run.begin, run.end});
  const std::size_t first = out.size();
  for (std::size_t i = 0; byte_fallback_ && i < text.size(); ++i)
    if (const std::int32_t id = vocabulary_.find_byte(static_cast<unsigned char>(text[i])); id >= 0)
      out.push_back({id, run.begin, run.end});
  if (byte_fallback_ && out.size() - first == text.size()) return;
  out.resize(first);
  out.push_back(run);
}

void Unigram::encode(std::string_view piece, std::vector<PieceToken>& out) const {
  if (piece.empty()) return;
  const std::vector<Node> best = best_path(piece);
  std::vector<PieceToken> path;  // in reverse
  for (auto end = static_cast<std::uint32_t>(piece.size()); end > 0; end = best[end].begin) {
    const Node& node = best[end];
    if (node.id == unk_ && !path.empty() && path.back().id == unk_)
      path.back().begin = node.begin;
    else
      path.push_back({node.id, node.begin, end});
  }
  for (auto it = path.rbegin(); it != path.rend(); ++it) {
    if (it->id == unk_)
      append_run(piece, *it, out);
    else
      out.push_back(*it);
  }
}

}  // namespace qtrain
