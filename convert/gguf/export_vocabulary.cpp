#include "convert/gguf/export_vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "convert/gguf/layout.h"
#include "convert/gguf/pre_tokenizers.h"
#include "core/formats/json.h"
#include "core/keyed_hash.h"
#include "core/os/paths.h"
#include "text/tokenizer/load.h"
#include "text/tokenizer/sentencepiece.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

using Kind = SentencePieceModel::Kind;  // the values of tokenizer.ggml.token_type

constexpr std::string_view kSpace = "\u2581";

[[noreturn]] void refuse_tokenizer(const fs::path& file, const std::string& cause) {
  fail(ErrorKind::input, {.cause = cause + ", which GGUF cannot express", .place = file.string()});
}

/// Fills in texts and types by row, including added tokens from the settings and from tokenizer.json.
void fill_tokens(const VocabularySource& from, const std::vector<AddedToken>& added_of_json, GgufVocabulary& v) {
  const Tokenizer& tokenizer = from.tokenizer;
  if (tokenizer.size() > from.rows)
    fail(ErrorKind::input, {.cause = fmt::format("the tokenizer has {} tokens, but the model only {} embeddings",
                                                 tokenizer.size(), from.rows),
                            .place = from.folder.string(),
                            .remedy = "resize the embedding to the tokenizer (vocab_size in config.json)"});
  for (std::int32_t id = 0; id < from.rows; ++id) {
    std::string text = id < tokenizer.size() ? tokenizer.token(id) : "";
    const bool gap = text.empty();
    v.tokens.push_back(gap ? fmt::format("[PAD{}]", id) : std::move(text));
    v.types.push_back(static_cast<std::int32_t>(gap ? Kind::unused : Kind::normal));
  }
  auto added = read_tokenizer_settings(from.folder).added;
  added.insert(added.end(), added_of_json.begin(), added_of_json.end());
  for (const AddedToken& token : added) {
    const auto id = tokenizer.id_of(token.content);
    if (!id) continue;
    const auto kind = tokenizer.is_special(*id) ? Kind::control : Kind::user_defined;
    v.types[static_cast<std::size_t>(*id)] = static_cast<std::int32_t>(kind);
    if (token.lstrip || token.rstrip || token.single_word)
      v.notes.push_back(
          fmt::format("GGUF cannot express the lstrip, rstrip or single_word setting of \"{}\"", token.content));
  }
  std::unordered_set<std::string_view, KeyedHash> seen;
  for (const auto& text : v.tokens)
    if (!seen.insert(text).second)
      fail(ErrorKind::input, {.cause = fmt::format("token \"{}\" has two ids", text), .place = from.folder.string()});
}

void set_type(GgufVocabulary& v, std::optional<std::int32_t> id, Kind kind) {
  if (id) v.types[static_cast<std::size_t>(*id)] = static_cast<std::int32_t>(kind);
}

/// The steps of a normalizer or pre-tokenizer, with sequences flattened.
std::vector<Json> steps_of(const Json& json) {
  if (!json.is_object()) return {};
  for (const char* list : {"normalizers", "pretokenizers"})
    if (json.contains(list)) {
      std::vector<Json> steps;
      for (const Json& step : json[list])
        for (Json& inner : steps_of(step)) steps.push_back(std::move(inner));
      return steps;
    }
  return {json};
}

Json part(const Json& json, const char* key) {
  return json.contains(key) ? json[key] : Json();
}

struct Merge {
  std::string left, right;
};

std::vector<Merge> merges_of(const Json& model) {
  std::vector<Merge> merges;
  for (const Json& merge : model.at("merges")) {
    if (merge.is_array()) {
      merges.push_back({merge.at(0), merge.at(1)});
      continue;
    }
    const auto& text = merge.get_ref<const std::string&>();
    const auto space = text.find(' ', 1);
    check(space != std::string::npos, "a merge must have two parts");
    merges.push_back({text.substr(0, space), text.substr(space + 1)});
  }
  return merges;
}

void fill_byte_level(const fs::path& file, const Json& json, GgufVocabulary& v) {
  const auto normalizer = steps_of(part(json, "normalizer"));
  const bool nfc = normalizer.size() == 1 && normalizer[0].value("type", "") == "NFC";
  if (!normalizer.empty() && !nfc)
    refuse_tokenizer(file, fmt::format("its normalizer is {}", dump_json(json["normalizer"])));
  PreTokenizerRules rules{.pre_tokenizer = part(json, "pre_tokenizer"),
                          .ignore_merges = json["model"].value("ignore_merges", false),
                          .nfc = nfc};
  const auto* pre = gguf_pre_tokenizer_of(rules);
  if (pre == nullptr && nfc) {
    rules.nfc = false;
    pre = gguf_pre_tokenizer_of(rules);
    v.notes.emplace_back("GGUF cannot express that text is normalized (NFC) before it is tokenized");
  }
  if (pre == nullptr)
    refuse_tokenizer(file, fmt::format("its pre-tokenizer{} is {}", rules.ignore_merges ? " (with ignore_merges)" : "",
                                       dump_json(rules.pre_tokenizer)));
  v.model = "gpt2";
  v.pre = pre->name;
  for (const Merge& m : merges_of(json["model"])) {
    if ((m.left + m.right).find(' ') != std::string::npos) refuse_tokenizer(file, "a merge contains a blank");
    v.merges.push_back(m.left + " " + m.right);
  }
}

/// Whether normalizers or a Metaspace step put a blank before the text.
bool space_prefix(const fs::path& file, const Json& json, GgufVocabulary& v) {
  const auto unknown = [&]() {
    refuse_tokenizer(file, fmt::format("its normalizer is {} and its pre-tokenizer {}",
                                       dump_json(part(json, "normalizer")), dump_json(part(json, "pre_tokenizer"))));
  };
  auto normalizers = steps_of(part(json, "normalizer"));
  const auto cutters = steps_of(part(json, "pre_tokenizer"));
  if (normalizers.empty() && cutters.size() == 1 && cutters[0].value("type", "") == "Metaspace") {
    const auto scheme =
        cutters[0].value("prepend_scheme", cutters[0].value("add_prefix_space", true) ? "always" : "never");
    if (cutters[0].value("split", true) || cutters[0].value("replacement", std::string(kSpace)) != kSpace) unknown();
    if (scheme == "first")
      v.notes.emplace_back("llama.cpp also inserts a blank after special tokens, not only at the beginning of a text");
    return scheme != "never";
  }
  const Json replace{{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpace}};
  // Gemma's pre-tokenizer splits at blanks, but the normalizer has already replaced them all.
  const Json cuts_nothing{
      {"type", "Split"}, {"pattern", {{"String", " "}}}, {"behavior", "MergedWithPrevious"}, {"invert", false}};
  const bool cut = cutters.size() > 1 || (cutters.size() == 1 && cutters[0] != cuts_nothing);
  if (cut || normalizers.empty() || normalizers.back() != replace) unknown();
  normalizers.pop_back();
  if (normalizers.empty()) return false;
  if (normalizers.size() != 1 || normalizers[0] != Json{{"type", "Prepend"}, {"prepend", kSpace}}) unknown();
  return true;
}

/// sentencepiece has scores instead of merges: pieces are ordered as the merges create them. Both are equivalent if
/// every split of a piece into two pieces is a merge and the merges that create a piece are consecutive.
void fill_scores(const fs::path& file, const Json& json, GgufVocabulary& v) {
  std::unordered_map<std::string, std::size_t, KeyedHash> ids;
  for (std::size_t i = 0; i < v.tokens.size(); ++i) ids.emplace(v.tokens[i], i);
  v.scores.assign(v.tokens.size(), 0);
  std::unordered_map<std::size_t, std::size_t, KeyedHash> cuts;  // merges that create a piece
  std::size_t last = v.tokens.size();
  float score = 0;
  for (const Merge& m : merges_of(json["model"])) {
    const auto piece = ids.at(m.left + m.right);
    if (piece != last && cuts.contains(piece))
      refuse_tokenizer(file, "its merges are not in the order of the pieces that they create");
    if (piece != last) v.scores[piece] = score -= 1;
    ++cuts[piece];
    last = piece;
  }
  for (std::size_t i = 0; i < v.tokens.size(); ++i) {
    if (v.types[i] != static_cast<std::int32_t>(Kind::normal)) continue;
    const auto& text = v.tokens[i];
    if (text.size() > kLongestPiece)
      refuse_tokenizer(file, fmt::format("token {} has {} bytes, more than {}", i, text.size(), kLongestPiece));
    std::size_t possible = 0;
    for (std::size_t cut = 1; cut < text.size(); ++cut)
      possible += (text[cut] & 0xc0) != 0x80 && ids.contains(text.substr(0, cut)) && ids.contains(text.substr(cut));
    if (possible != (cuts.contains(i) ? cuts[i] : 0))
      refuse_tokenizer(file, fmt::format("not every split of \"{}\" into two tokens is a merge", text));
    if (possible == 0) v.scores[i] = score -= 1;
  }
}

void fill_sentencepiece(const fs::path& file, const Json& json, GgufVocabulary& v) {
  v.model = "llama";
  v.pre = "default";
  v.add_space_prefix = space_prefix(file, json, v);
  for (std::size_t i = 0; i < v.tokens.size(); ++i) {
    const auto& t = v.tokens[i];
    if (t.size() == 6 && t.starts_with("<0x") && t.ends_with('>')) v.types[i] = static_cast<std::int32_t>(Kind::byte);
  }
  fill_scores(file, json, v);
}

void fill_from_json(const VocabularySource& from, GgufVocabulary& v) {
  const auto file = from.folder / "tokenizer.json";
  std::vector<AddedToken> added;
  const Json json = read_tokenizer_file(file, added);
  fill_tokens(from, added, v);
  const Json& model = json.at("model");
  const auto type = model.value("type", "");
  if (!type.empty() && type != "BPE") refuse_tokenizer(file, fmt::format("its model is {}", type));
  if (model.contains("unk_token") && model["unk_token"].is_string())
    set_type(v, from.tokenizer.id_of(model["unk_token"].get_ref<const std::string&>()), Kind::unknown);
  if (model.value("byte_fallback", false))
    fill_sentencepiece(file, json, v);
  else
    fill_byte_level(file, json, v);
}

void fill_from_pieces(const VocabularySource& from, GgufVocabulary& v) {
  const auto file = from.folder / "tokenizer.model";
  const auto model = read_sentencepiece_model(file);
  if (model.algorithm != SentencePieceModel::Algorithm::bpe) refuse_tokenizer(file, "it is a Unigram model, not BPE");
  if (model.normalizes) refuse_tokenizer(file, "it replaces characters before it tokenizes");
  if (model.remove_extra_whitespaces) refuse_tokenizer(file, "it removes repeated blanks");
  fill_tokens(from, {}, v);
  v.model = "llama";
  v.pre = "default";
  v.add_space_prefix = read_tokenizer_settings(from.folder).flag("add_prefix_space").value_or(model.add_dummy_prefix);
  v.scores.assign(v.tokens.size(), -10000);  // rows without a piece get the score that llama.cpp's converter writes
  for (std::size_t i = 0; i < model.pieces.size(); ++i) {
    v.scores[i] = model.pieces[i].score;
    if (model.pieces[i].kind != Kind::normal) v.types[i] = static_cast<std::int32_t>(model.pieces[i].kind);
  }
}

/// Checks that only BOS and EOS are added around a text.
void check_frame(const VocabularySource& from) {
  const auto& special = from.tokenizer.special();
  std::vector<std::int32_t> expected;
  if (special.add_bos && special.bos_id) expected.push_back(*special.bos_id);
  if (special.add_eos && special.eos_id) expected.push_back(*special.eos_id);
  if (from.tokenizer.encode("") != expected)
    refuse_tokenizer(from.folder, "its post-processor adds other tokens than bos_token and eos_token");
}

}  // namespace

GgufVocabulary gguf_vocabulary(const VocabularySource& source) {
  GgufVocabulary v;
  const auto file = source.folder / "tokenizer.json";
  if (path_exists(file))
    reading(file, [&] { fill_from_json(source, v); });
  else
    fill_from_pieces(source, v);
  check_frame(source);
  return v;
}

void put_vocabulary(GgufMetadata& metadata, const GgufVocabulary& v) {
  metadata.put_text("tokenizer.ggml.model", v.model);
  metadata.put_text("tokenizer.ggml.pre", v.pre);
  metadata.put_texts("tokenizer.ggml.tokens", v.tokens);
  if (!v.scores.empty()) metadata.put_numbers("tokenizer.ggml.scores", v.scores);
  metadata.put_integers("tokenizer.ggml.token_type", v.types);
  if (!v.merges.empty()) metadata.put_texts("tokenizer.ggml.merges", v.merges);
  if (v.add_space_prefix) metadata.put_flag("tokenizer.ggml.add_space_prefix", *v.add_space_prefix);
}

}  // namespace qtrain
