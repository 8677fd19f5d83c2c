#include "data/tokenizer/tokenizer.h"

namespace qtrain {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // stands for bytes that are no whole character (yet)
constexpr std::size_t kMostHeldBack = 16;                  // ids; a character has 4 bytes at most

}  // namespace

// Decoders look at neighbours (a leading space goes, bytes join to characters), so the ids whose text came last are
// decoded again in front of the new ones: the first `context_` of ids_.
std::string StreamDecoder::push(std::int32_t id) {
  ids_.push_back(id);
  const std::size_t held = ids_.size() - context_;
  const std::string shown = tokenizer_.decode(std::span(ids_).first(context_), options_);
  const std::string all = tokenizer_.decode(ids_, options_);
  const bool wait = all.size() <= shown.size() || all.ends_with(kReplacement);
  if (wait && held < kMostHeldBack) return {};
  ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(context_));
  context_ = ids_.size();
  return all.size() > shown.size() ? all.substr(shown.size()) : "";
}

std::string StreamDecoder::finish() {
  const std::string shown = tokenizer_.decode(std::span(ids_).first(context_), options_);
  const std::string all = tokenizer_.decode(ids_, options_);
  ids_.clear();
  context_ = 0;
  return all.size() > shown.size() ? all.substr(shown.size()) : "";
}

}  // namespace qtrain
