#pragma once
#include <array>
#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace qtrain {

struct AddedToken {
  std::int32_t id = -1;
  std::string content;
  bool special = false, normalized = true, single_word = false, lstrip = false, rstrip = false;
  bool by_name = false;  ///< only a name like eos_token stands for it, so that attributes known otherwise hold
};
/// From an entry of `added_tokens` (tokenizer.json) or `added_tokens_decoder` (tokenizer_config.json).
AddedToken parse_added_token(const Json& json);

/// An added token found in a text: its bytes, blanks taken by lstrip and rstrip included.
struct AddedMatch {
  std::size_t begin, end;
  std::int32_t id;
};

/// Finds added tokens: leftmost, longest first, as the tokenizers library.
class AddedTokenFinder {
 public:
  /// `content` as it is to be found (normalised or not).
  void add(const AddedToken& token, const std::string& content);
  void remove(std::int32_t id);
  bool empty() const { return entries_.empty(); }
  std::vector<AddedMatch> find(std::string_view text) const;

 private:
  struct Entry {
    std::string content;
    AddedToken token;
  };
  const Entry* longest_at(std::string_view text, std::size_t at) const;

  std::vector<Entry> entries_;
  // By first byte, longest first, and which second bytes there are (all, where a token has one byte only).
  struct Bucket {
    std::vector<std::uint32_t> entries;
    std::bitset<256> second;
  };
  std::array<Bucket, 256> buckets_;
};

}  // namespace qtrain
