#include "text/tokenizer/model.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/tokenizer/bpe.h"
#include "text/tokenizer/unigram.h"

namespace qtrain {

void refuse_model(const std::string& cause) {
  fail(ErrorKind::input, {.cause = cause, .place = "model"});
}

std::unique_ptr<TokenModel> make_token_model(const JsonView& json, Alphabet alphabet) {
  // Old files have no type.
  const std::string type = json.text("type", json.find("merges") ? "BPE" : "Unigram");
  if (type == "BPE") return std::make_unique<Bpe>(json, alphabet);
  if (type == "Unigram") return std::make_unique<Unigram>(json, alphabet);
  fail(ErrorKind::input,
       {.cause = "tokenizer model \"" + type + "\" is not supported", .remedy = "supported: BPE, Unigram"});
}

Vocabulary::Vocabulary(const std::vector<std::pair<std::string_view, std::int64_t>>& entries) : ids_(entries.size()) {
  const auto refuse = [](const std::string& cause) { fail(ErrorKind::input, {.cause = cause, .place = "model"}); };
  if (entries.empty()) refuse("the vocabulary is empty");
  std::int64_t end = 0;
  for (const auto& [token, id] : entries) {
    if (id < 0 || id >= kMaxTokenId) refuse(fmt::format("the id of \"{}\" is out of range", token));
    end = std::max(end, id + 1);
  }
  const auto n = static_cast<std::int64_t>(entries.size());
  if (end > 4 * n + 65536) refuse(fmt::format("{} tokens with ids up to {}", n, end - 1));
  tokens_.resize(static_cast<std::size_t>(end));
  known_.resize(static_cast<std::size_t>(end));
  for (const auto& [token, id] : entries) {
    if (known_[static_cast<std::size_t>(id)] && tokens_[static_cast<std::size_t>(id)] != token)
      refuse(fmt::format("\"{}\" and \"{}\" share the id {}", tokens_[static_cast<std::size_t>(id)], token, id));
    tokens_[static_cast<std::size_t>(id)] = token;
    known_[static_cast<std::size_t>(id)] = true;
  }
  for (auto it = entries.rbegin(); it != entries.rend(); ++it)  // a repeated token has its last id
    ids_.insert(it->first, static_cast<std::int32_t>(it->second));
  count_ = static_cast<std::int32_t>(n);
}

std::int32_t Vocabulary::find_byte(unsigned char byte) const {
  return find(fmt::format("<0x{:02X}>", byte));
}

}  // namespace qtrain
