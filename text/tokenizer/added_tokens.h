#pragma once
#include <array>
#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/json_view.h"
#include "text/tokenizer/long_tokens.h"

namespace qtrain {

struct AddedToken {
  std::int32_t id = -1;
  std::string content;
  bool special = false, normalized = true, single_word = false, lstrip = false, rstrip = false;
  bool by_name = false;  ///< known only by a name such as eos_token; attributes from other sources take precedence
};
/// Parses an entry of `added_tokens` (tokenizer.json) or `added_tokens_decoder` (tokenizer_config.json).
AddedToken parse_added_token(const JsonView& json);

/// Throws ErrorKind::input if two tokens share an id.
void require_distinct_ids(const std::vector<AddedToken>& tokens);

/// An added token found in a text: its byte range, including blanks taken by lstrip and rstrip.
struct AddedMatch {
  std::size_t begin, end;
  std::int32_t id;
};

/// Finds added tokens, leftmost and longest first, like the tokenizers library. The time depends on the length of the
/// text and the tokens, not on their number.
class AddedTokenFinder {
 public:
  /// The text to search for (normalized or not) and its token; both must outlive the finder.
  struct Entry {
    std::string_view content;
    const AddedToken* token;
  };
  /// Uses the first of tokens with equal contents.
  explicit AddedTokenFinder(std::vector<Entry> entries = {});
  bool empty() const { return entries_.empty() && long_entries_.empty(); }
  std::vector<AddedMatch> find(std::string_view text) const;

 private:
  const Entry* longest_at(std::string_view text, std::size_t at) const;

  std::vector<Entry> entries_;       // sorted by content
  std::vector<Entry> long_entries_;  // too long to be compared at every byte of a text
  LongTokens long_tokens_;           // by their index in long_entries_
  // By first byte: the range of entries, and the possible second bytes (all if there is a one-byte token).
  struct Bucket {
    std::size_t begin = 0, end = 0;
    std::bitset<256> second;
  };
  std::array<Bucket, 256> buckets_;
};

}  // namespace qtrain
