#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "core/formats/json_view.h"
#include "core/keyed_hash.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/decoder.h"
#include "text/tokenizer/flat_tables.h"
#include "text/tokenizer/model.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace qtrain {

/// The ids added before and after a text, such as BOS and EOS.
struct SpecialFrame {
  std::vector<std::int32_t> before, after;
};

/// A tokenizer.json of the tokenizers library: added tokens, normalizer, pre-tokenizer, model, post-processor, decoder.
/// Like transformers, ignores its `truncation` and `padding`.
class JsonTokenizer final : public Tokenizer {
 public:
  /// `listed`: the file's `added_tokens`, which `json` may lack. `extra`: tokens named by the folder's other files.
  /// Tokens without an id get the next free ones.
  JsonTokenizer(const JsonView& json, std::vector<AddedToken> listed, const std::vector<AddedToken>& extra);

  std::vector<std::int32_t> encode(std::string_view text, EncodeOptions options) const override;
  Encoding encode_with_offsets(std::string_view text, EncodeOptions options) const override;
  std::string decode(std::span<const std::int32_t> ids, DecodeOptions options) const override;
  std::int32_t size() const override { return size_; }
  std::optional<std::int32_t> id_of(std::string_view token) const override;
  std::string token(std::int32_t id) const override;
  bool is_special(std::int32_t id) const override;
  const SpecialTokens& special() const override { return special_; }
  void set_special(SpecialTokens special) { special_ = std::move(special); }
  const SpecialFrame& frame() const { return frame_; }
  /// From now on, special tokens in texts are tokenized like other text.
  void split_special_tokens();

 private:
  void add_token(AddedToken token);
  void require_free(std::int32_t id, const std::string& content) const;
  void make_finders();
  const AddedToken* added(std::int32_t id) const;
  std::string shown(std::int32_t id) const;
  void encode_text(TrackedText text, Encoding& out) const;
  void encode_plain(TrackedText text, Encoding& out) const;
  static void add_frame(const std::vector<std::int32_t>& ids, std::size_t at, Encoding& out);

  std::unique_ptr<TokenModel> model_;
  std::unique_ptr<Normalizer> normalizer_;
  std::unique_ptr<PreTokenizer> pre_tokenizer_;
  std::unique_ptr<Decoder> decoder_;
  SpecialFrame frame_;
  AddedTokenFinder raw_finder_, normalized_finder_;
  std::vector<AddedToken> added_;         // in order of addition; replaced ones have no content
  std::vector<std::int32_t> added_with_;  // by id: index into added_, or -1
  StringIds added_ids_;
  std::unordered_map<std::int32_t, std::string, KeyedHash> normalized_;  // added tokens that the normalizer changes
  TextGrowth added_growth_;                                              // shared by all added tokens
  std::int32_t size_ = 0, next_id_ = 0;
  bool splits_special_ = false;
  SpecialTokens special_;
};

}  // namespace qtrain
