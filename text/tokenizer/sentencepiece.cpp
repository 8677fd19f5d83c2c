#include "text/tokenizer/sentencepiece.h"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include <cmath>
#include <cstring>
#include <string_view>

#include "core/error.h"
#include "core/os/file.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/model.h"
#include "text/tokenizer/unicode.h"

namespace qtrain {
namespace {

using Model = SentencePieceModel;

/// One field of a protocol buffer message: a number, or bytes.
struct Field {
  std::uint64_t number = 0;  ///< field number
  std::uint64_t value = 0;
  std::string_view bytes;
};

/// Reads the fields of a message one by one; throws ErrorKind::input for anything else.
class Fields {
 public:
  Fields(std::string_view message, const std::filesystem::path& file) : rest_(message), file_(file) {}

  [[noreturn]] void refuse() const {
    fail(ErrorKind::input, {.cause = "is not a sentencepiece model",
                            .place = file_.string(),
                            .remedy = "the file is damaged or of another kind: download it again"});
  }
  [[noreturn]] void refuse_length(std::size_t bytes) const {
    fail(ErrorKind::input,
         {.cause = fmt::format("a piece has {} bytes; up to {} are supported", bytes, kMaxUnigramToken),
          .place = file_.string()});
  }
  bool next(Field& field) {
    if (rest_.empty()) return false;
    const auto key = varint();
    field = {.number = key >> 3};
    switch (key & 7) {
      case 0: field.value = varint(); return true;
      case 1: field.bytes = take(8); return true;
      case 2: field.bytes = take(varint()); return true;
      case 5: field.bytes = take(4); return true;
      default: refuse();
    }
  }

 private:
  std::string_view take(std::uint64_t size) {
    if (size > rest_.size()) refuse();
    const auto bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return bytes;
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1).front());
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    refuse();
  }

  std::string_view rest_;
  const std::filesystem::path& file_;
};

Model::Entry read_piece(Fields fields) {
  Model::Entry piece;
  for (Field f; fields.next(f);) {
    if (f.number == 1) piece.text = f.bytes;
    if (f.number == 2 && f.bytes.size() == 4) std::memcpy(&piece.score, f.bytes.data(), 4);
    if (f.number == 3) piece.kind = static_cast<Model::Kind>(f.value);
  }
  if (!std::isfinite(piece.score)) fields.refuse();
  if (piece.text.size() > kMaxUnigramToken) fields.refuse_length(piece.text.size());
  return piece;
}

void read_trainer(Fields fields, Model& model) {
  for (Field f; fields.next(f);)
    if (f.number == 3) model.algorithm = static_cast<Model::Algorithm>(f.value);
}

void read_normalizer(Fields fields, Model& model) {
  for (Field f; fields.next(f);) {
    if (f.number == 2) model.normalizes = !f.bytes.empty();
    if (f.number == 3) model.add_dummy_prefix = f.value != 0;
    if (f.number == 4) model.remove_extra_whitespaces = f.value != 0;
  }
}

/// A tokenizer.model used through libsentencepiece, with the added tokens of tokenizer_config.json split off first.
class SentencePieceTokenizer final : public Tokenizer {
 public:
  /// Settings of tokenizer_config.json for texts with special tokens.
  struct Rules {
    bool legacy = false;  ///< every stretch between special tokens starts with a blank, like a whole text
    bool split_special_tokens = false;
    std::optional<bool> add_prefix_space = {};  ///< whether texts start with a blank; absent: as in the model
  };

  SentencePieceTokenizer(const std::filesystem::path& file, std::vector<AddedToken> added, const Rules& rules)
      : legacy_(rules.legacy), prefixes_(rules.add_prefix_space.value_or(true)) {
    const auto status = processor_.Load(file.string());
    if (!status.ok())
      fail(ErrorKind::input, {.cause = "not a sentencepiece model: " + status.ToString(), .place = file.string()});
    load_variants(file, rules);
    size_ = processor_.GetPieceSize();
    for (AddedToken& t : added) add_token(std::move(t));
    add_defined_pieces(file);
    std::vector<AddedTokenFinder::Entry> entries;
    for (const auto& [id, token] : added_)
      if (!rules.split_special_tokens || !token.special) entries.push_back({token.content, &token});
    finder_ = AddedTokenFinder(std::move(entries));
  }

  std::vector<std::int32_t> encode(std::string_view text, EncodeOptions options) const override {
    return encode_with_offsets(text, options).ids;
  }

  Encoding encode_with_offsets(std::string_view text, EncodeOptions options) const override {
    Encoding out;
    if (options.add_special && special_.add_bos && special_.bos_id) put(*special_.bos_id, 0, 0, out);
    std::size_t last = 0;
    for (const AddedMatch& m : finder_.find(text)) {
      encode_plain(text.substr(last, m.begin - last), last, out);
      put(m.id, m.begin, m.end, out);
      last = m.end;
    }
    encode_plain(text.substr(last), last, out);
    if (options.add_special && special_.add_eos && special_.eos_id)
      put(*special_.eos_id, text.size(), text.size(), out);
    return out;
  }

  // Runs of ordinary pieces are decoded by sentencepiece; added tokens are inserted unchanged.
  std::string decode(std::span<const std::int32_t> ids, DecodeOptions options) const override {
    std::string text;
    std::vector<int> run;
    const auto flush = [&] {
      std::string part;
      const auto& decodes = text.empty() && prefixes_ ? processor_ : inner_;
      if (!run.empty()) decodes.Decode(run, &part).IgnoreError();
      text += part;
      run.clear();
    };
    for (const std::int32_t id : ids) {
      if (id < 0 || id >= size_) continue;
      if (id < processor_.GetPieceSize() && !added_.contains(id) && !processor_.IsControl(id)) {
        run.push_back(id);
        continue;
      }
      flush();
      if (!options.skip_special || !is_special(id)) text += token(id);
    }
    flush();
    return text;
  }

  std::int32_t size() const override { return size_; }
  std::optional<std::int32_t> id_of(std::string_view token) const override {
    if (const auto it = added_ids_.find(std::string(token)); it != added_ids_.end()) return it->second;
    const int id = processor_.PieceToId(std::string(token));
    return processor_.IdToPiece(id) == token ? std::optional(id) : std::nullopt;
  }
  std::string token(std::int32_t id) const override {
    const auto it = added_.find(id);
    if (it != added_.end()) return it->second.content;
    return id >= 0 && id < processor_.GetPieceSize() ? processor_.IdToPiece(id) : "";
  }
  bool is_special(std::int32_t id) const override {
    const auto it = added_.find(id);
    if (it != added_.end()) return it->second.special;
    return id >= 0 && id < processor_.GetPieceSize() && processor_.IsControl(id);
  }
  const SpecialTokens& special() const override { return special_; }
  void set_special(SpecialTokens special) { special_ = std::move(special); }

 private:
  void add_token(AddedToken t) {
    if (const auto known = id_of(t.content))
      t.id = *known;
    else if (t.id < 0)
      t.id = size_;
    if (t.id >= kMaxTokenId)
      fail(ErrorKind::input, {.cause = "the id of the added token \"" + t.content + "\" is out of range"});
    require_free(t);
    size_ = std::max(size_, t.id + 1);
    if (added_.emplace(t.id, t).second) added_ids_.emplace(t.content, t.id);
  }
  void require_free(const AddedToken& t) const {
    const std::string other = token(t.id);
    if (!other.empty() && other != t.content)
      fail(ErrorKind::input,
           {.cause = "\"" + other + "\" and \"" + t.content + "\" share the id " + std::to_string(t.id),
            .remedy = "download the tokenizer files again"});
  }
  /// transformers treats user-defined pieces as added tokens, also in how blanks around them are handled.
  void add_defined_pieces(const std::filesystem::path& file) {
    for (const auto& piece : read_sentencepiece_model(file).pieces)
      if (piece.kind == SentencePieceModel::Kind::user_defined) add_token({.content = piece.text, .normalized = false});
  }
  static void put(std::int32_t id, std::size_t begin, std::size_t end, Encoding& out) {
    out.ids.push_back(id);
    out.offsets.emplace_back(begin, end);
  }
  /// Loads the model without the blank that it adds to texts, and without removing one when decoding. Repeated messages
  /// in a protocol buffer are merged, with the last values winning.
  void load_variants(const std::filesystem::path& file, const Rules& rules) {
    const std::string model = read_text(file);
    const auto load = [&](auto& processor, std::string_view normalizer_spec) {
      check(processor.LoadFromSerializedProto(model + std::string(normalizer_spec)).ok(),
            "a sentencepiece model cannot be loaded twice");
    };
    if (rules.add_prefix_space) load(processor_, "\x1a\x02\x18\x01");  // add_dummy_prefix: true
    load(bare_, {"\x1a\x02\x18\x00", 4});                              // and false
    load(inner_, {"\x1a\x04\x18\x00\x20\x00", 6});                     // and remove_extra_whitespaces: false
    keeps_blanks_ = !read_sentencepiece_model(file).remove_extra_whitespaces;
  }

  /// Like transformers: adds the blank at the beginning of the whole text, or of every stretch, unless there already is
  /// one, or none is wanted.
  const sentencepiece::SentencePieceProcessor& encoder_of(std::string_view text, std::size_t base) const {
    const bool blank = text.starts_with(' ') || text.starts_with("\u2581"),
               bare = blank ? keeps_blanks_ : !prefixes_ || (base > 0 && !legacy_);
    return bare ? bare_ : processor_;
  }

  void encode_plain(std::string_view text, std::size_t base, Encoding& out) const {
    if (text.empty()) return;
    const auto pieces = encoder_of(text, base).EncodeAsImmutableProto(std::string(text));
    for (std::size_t i = 0; i < pieces.pieces_size(); ++i) {
      const auto p = pieces.pieces(static_cast<int>(i));
      put(static_cast<std::int32_t>(p.id()), base + p.begin(), base + p.end(), out);
    }
  }

  sentencepiece::SentencePieceProcessor processor_, bare_, inner_;
  bool legacy_, prefixes_, keeps_blanks_ = false;
  AddedTokenFinder finder_;
  std::map<std::int32_t, AddedToken> added_;
  std::map<std::string, std::int32_t> added_ids_;
  std::int32_t size_ = 0;
  SpecialTokens special_;
};

}  // namespace

SentencePieceModel read_sentencepiece_model(const std::filesystem::path& file) {
  const MappedFile mapped(file);
  Model model;
  Fields fields(mapped.text(), file);
  for (Field f; fields.next(f);) {
    if (f.number == 1) model.pieces.push_back(read_piece({f.bytes, file}));
    if (f.number == 2) read_trainer({f.bytes, file}, model);
    if (f.number == 3) read_normalizer({f.bytes, file}, model);
  }
  if (model.pieces.empty()) fail(ErrorKind::input, {.cause = "has no pieces", .place = file.string()});
  return model;
}

std::unique_ptr<Tokenizer> load_sentencepiece(const TokenizerSettings& settings) {
  const auto flag = [&](const char* key, bool otherwise) { return settings.flag(key).value_or(otherwise); };
  auto tokenizer = std::make_unique<SentencePieceTokenizer>(
      settings.folder / "tokenizer.model", settings.added,
      SentencePieceTokenizer::Rules{.legacy = flag("legacy", false),
                                    .split_special_tokens = flag("split_special_tokens", false),
                                    .add_prefix_space = settings.flag("add_prefix_space")});
  SpecialTokens special = resolve_special(settings, *tokenizer);
  special.add_bos = flag("add_bos_token", true);
  special.add_eos = flag("add_eos_token", false);
  if (!special.named.contains("bos_token")) special.bos_id = tokenizer->id_of("<s>");
  if (!special.named.contains("eos_token")) special.eos_id = tokenizer->id_of("</s>");
  tokenizer->set_special(std::move(special));
  return tokenizer;
}

}  // namespace qtrain
