#pragma once
#include <array>
#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/json_view.h"

namespace qtrain {

struct AddedToken {
  std::int32_t id = -1;
  std::string content;
  bool special = false, normalized = true, single_word = false, lstrip = false, rstrip = false;
  bool by_name = false;  ///< only a name like eos_token stands for it, so that attributes known otherwise hold
};
/// From an entry of `added_tokens` (tokenizer.json) or `added_tokens_decoder` (tokenizer_config.json).
AddedToken parse_added_token(const JsonView& json);

/// An input error for two tokens of one id, of those that have one.
void require_distinct_ids(const std::vector<AddedToken>& tokens);

/// An added token found in a text: its bytes, blanks taken by lstrip and rstrip included.
struct AddedMatch {
  std::size_t begin, end;
  std::int32_t id;
};

/// Finds added tokens: leftmost, longest first, as the tokenizers library. A text takes time by its length and that of
/// the tokens, not by their number.
class AddedTokenFinder {
 public:
  /// What is looked for (normalized or not) and the token that it stands for; both have to outlive the finder.
  struct Entry {
    std::string_view content;
    const AddedToken* token;
  };
  /// Of equal contents the first counts.
  explicit AddedTokenFinder(std::vector<Entry> entries = {});
  bool empty() const { return entries_.empty(); }
  std::vector<AddedMatch> find(std::string_view text) const;

 private:
  const Entry* longest_at(std::string_view text, std::size_t at) const;

  std::vector<Entry> entries_;  // in the order of their contents
  // By first byte: which entries, and which second bytes there are (all, where a token has one byte only).
  struct Bucket {
    std::size_t begin = 0, end = 0;
    std::bitset<256> second;
  };
  std::array<Bucket, 256> buckets_;
};

}  // namespace qtrain
