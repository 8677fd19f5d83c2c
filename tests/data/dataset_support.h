#pragma once
#include <memory>
#include <string>

#include "data/dataset.h"
#include "tests/data/support.h"
#include "text/template/chat_template.h"
#include "text/template/load.h"
#include "text/tokenizer/load.h"
#include "text/tokenizer/tokenizer.h"

namespace qtrain::test {

/// A tokenizer from the goldens, with its template.
struct GoldenText {
  explicit GoldenText(const std::string& name)
      : tokenizer(load_tokenizer(golden_folder() / name)), chat(load_chat_template(golden_folder() / name)) {}
  std::unique_ptr<Tokenizer> tokenizer;
  ChatTemplate chat;
  TextTools tools() const { return {.tokenizer = *tokenizer, .chat_template = &chat}; }
};

/// Tokenizes into bytes; does not recognize special tokens in text, like sentencepiece.
class ByteTokenizer : public Tokenizer {
 public:
  explicit ByteTokenizer(bool add_eos) {
    special_.named = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
    special_.bos_id = 1;
    special_.eos_id = 2;
    special_.add_bos = true;
    special_.add_eos = add_eos;
  }
  std::vector<std::int32_t> encode(std::string_view text, EncodeOptions options) const override {
    std::vector<std::int32_t> ids;
    if (options.add_special) ids.push_back(1);
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    if (options.add_special && special_.add_eos) ids.push_back(2);
    return ids;
  }
  Encoding encode_with_offsets(std::string_view text, EncodeOptions options) const override {
    Encoding encoding{encode(text, options), {}};
    const std::size_t before = options.add_special ? 1 : 0;
    for (std::size_t t = 0; t < encoding.ids.size(); ++t) {
      const bool of_text = t >= before && t - before < text.size();
      encoding.offsets.emplace_back(of_text ? std::pair{t - before, t - before + 1}
                                            : std::pair<std::size_t, std::size_t>{});
    }
    return encoding;
  }
  std::string decode(std::span<const std::int32_t>, DecodeOptions) const override { return {}; }
  std::int32_t size() const override { return 256; }
  std::optional<std::int32_t> id_of(std::string_view) const override { return std::nullopt; }
  std::string token(std::int32_t id) const override { return id == 1 ? "<s>" : "</s>"; }
  bool is_special(std::int32_t id) const override { return id < 3; }
  const SpecialTokens& special() const override { return special_; }

 private:
  SpecialTokens special_;
};

/// Builds small data sets of rows.
class DatasetFolder : public DataFolder {
 protected:
  Dataset build(std::string_view rows, DatasetOptions options = {}) {
    options.files = {write("rows.jsonl", rows)};
    return build_dataset(options, chatml_.tools(), pool_);
  }
  std::string text_of(const Dataset& data, std::int64_t row) const {
    const RowView view = data.row(row);
    return chatml_.tokenizer->decode(view.input_ids);
  }
  /// The text of a row's targets.
  std::string targets_of(const Dataset& data, std::int64_t row) const {
    std::vector<std::int32_t> targets;
    for (const std::int32_t label : data.row(row).labels)
      if (label != kNoTarget) targets.push_back(label);
    return chatml_.tokenizer->decode(targets);
  }

  GoldenText chatml_{"chatml"};
  ThreadPool pool_{2};
};

}  // namespace qtrain::test
