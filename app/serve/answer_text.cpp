#include "app/serve/answer_text.h"

#include <algorithm>

#include "text/tokenizer/unicode.h"

namespace qtrain::serve {
namespace {

// The length of the longest end of `text` that is the beginning of a stop string.
std::size_t partial_stop_length(const std::string& text, const std::vector<std::string>& stop) {
  std::size_t longest = 0;
  for (const std::string& s : stop)
    for (std::size_t n = std::min(text.size(), s.size() - 1); n > longest; --n)
      if (text.compare(text.size() - n, n, s, 0, n) == 0) longest = n;
  return longest;
}

}  // namespace

TextToken AnswerText::text_of(const AnswerToken& token) {
  TextToken t{.text = decoder_.push(token.id), .bytes = {}, .logprob = token.logprob};
  const bool is_shown = !tokenizer_->is_special(token.id);
  if (!t.text.empty() && !holds_bytes_)
    t.bytes = t.text;
  else if (is_shown)
    t.bytes = token_bytes(*tokenizer_, token.id);
  holds_bytes_ = t.text.empty() && (holds_bytes_ || is_shown);
  for (const auto& [id, logprob] : token.top) {
    std::string bytes = token_bytes(*tokenizer_, id);
    std::string text = is_utf8(bytes) ? bytes : tokenizer_->decode(std::span(&id, 1), {.skip_special = false});
    t.top.push_back({.id = id, .text = std::move(text), .bytes = std::move(bytes), .logprob = logprob});
  }
  return t;
}

bool AnswerText::push(const AnswerToken& token, Piece& out) {
  held_ += tokens_.emplace_back(held_.size(), text_of(token)).second.text;
  return take(out, false);
}

void AnswerText::finish(Piece& out) {
  if (stopped_) return;
  const std::string rest = decoder_.finish();
  held_ += rest;
  if (!tokens_.empty()) tokens_.back().second.text += rest;
  take(out, true);
}

bool AnswerText::take(Piece& out, bool all) {
  std::size_t end = std::string::npos;
  for (const std::string& s : stop_) end = std::min(end, held_.find(s));
  const bool stopped = end != std::string::npos;
  if (!stopped) end = all ? held_.size() : held_.size() - partial_stop_length(held_, stop_);
  out.text += held_.substr(0, end);
  std::size_t taken = 0;
  for (; taken < tokens_.size() && (tokens_[taken].first < end || (all && !stopped)); ++taken)
    out.tokens.push_back(std::move(tokens_[taken].second));
  tokens_.erase(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(taken));
  held_.erase(0, stopped ? std::string::npos : end);
  for (auto& token : tokens_) token.first -= std::min(token.first, end);
  if (stopped) tokens_.clear();
  stopped_ = stopped;
  return stopped;
}

}  // namespace qtrain::serve
