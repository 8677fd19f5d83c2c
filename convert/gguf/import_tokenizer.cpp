#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "convert/gguf/import_model.h"
#include "convert/gguf/pre_tokenizers.h"
#include "core/keyed_hash.h"

namespace qtrain {
namespace {

/// tokenizer.ggml.token_type
enum class TokenType : std::int64_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

struct Vocabulary {
  std::vector<std::string_view> tokens;
  std::vector<TokenType> types;
  std::unordered_map<std::string_view, std::int64_t, KeyedHash> ids;  ///< without unused tokens
};

Vocabulary read_vocabulary(const GgufFile& file) {
  const auto& tokens = file.array("tokenizer.ggml.tokens");
  const auto* types = file.find("tokenizer.ggml.token_type");
  if (types != nullptr && (!types->is_array() || types->size() != tokens.size()))
    refuse_gguf(file, "tokenizer.ggml.token_type does not have one entry per token");
  Vocabulary vocabulary;
  vocabulary.ids.reserve(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (!tokens[i].is_string()) refuse_gguf(file, fmt::format("token {} is not a string", i));
    if (types != nullptr && !(*types)[i].is_number_integer()) refuse_gguf(file, fmt::format("token {} has no type", i));
    const auto& text = vocabulary.tokens.emplace_back(tokens[i].get_ref<const std::string&>());
    auto type = types ? static_cast<TokenType>((*types)[i].get<std::int64_t>()) : TokenType::normal;
    if (text.empty()) type = TokenType::unused;
    vocabulary.types.push_back(type);
    if (type != TokenType::unused && !vocabulary.ids.emplace(text, static_cast<std::int64_t>(i)).second)
      refuse_gguf(file, fmt::format("token \"{}\" has two ids", text));
  }
  return vocabulary;
}

/// Text of the token that a key such as "tokenizer.ggml.bos_token_id" names; empty if it is unused.
std::optional<std::string> named_token(const GgufFile& file, const Vocabulary& vocabulary, const std::string& key) {
  if (!file.find(key)) return {};
  const auto id = file.integer(key);
  if (id >= static_cast<std::int64_t>(vocabulary.tokens.size()))
    refuse_gguf(file, fmt::format("{} is {}, but there are {} tokens", key, id, vocabulary.tokens.size()));
  if (vocabulary.types[static_cast<std::size_t>(id)] == TokenType::unused) return {};
  return std::string(vocabulary.tokens[static_cast<std::size_t>(id)]);
}

/// A boolean of the metadata, if present.
std::optional<bool> flag(const GgufFile& file, const std::string& key) {
  const auto* v = file.find(key);
  return v != nullptr && v->is_boolean() ? std::optional(v->get<bool>()) : std::nullopt;
}

/// Whether BOS and EOS are added to a text.
struct Ends {
  bool bos = false, eos = false;
};

Ends ends_of(const GgufFile& file, Ends otherwise) {
  return {flag(file, "tokenizer.ggml.add_bos_token").value_or(otherwise.bos),
          flag(file, "tokenizer.ggml.add_eos_token").value_or(otherwise.eos)};
}

/// Whether a token strips the blanks after it. Most special tokens of Phi-3 do, but GGUF cannot express it.
bool strips_behind(const GgufFile& file, std::string_view token) {
  std::string name = file.find("general.name") ? file.text("general.name") : "";
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  if (name.find("phi-3") == name.npos && name.find("phi3") == name.npos) return false;
  return token != "<unk>" && token != "<s>" && token != "<|endoftext|>";
}

Json added_tokens(const GgufFile& file, const Vocabulary& vocabulary) {
  Json added = Json::array();
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const auto type = vocabulary.types[i];
    if (type != TokenType::control && type != TokenType::user_defined && type != TokenType::unknown) continue;
    added.push_back({{"id", i},
                     {"content", vocabulary.tokens[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", strips_behind(file, vocabulary.tokens[i])},
                     {"normalized", false},
                     {"special", type != TokenType::user_defined}});
  }
  return added;
}

Json vocabulary_json(const Vocabulary& vocabulary) {
  Json::object_t ids;  // filled directly, because lookups in an ordered object take linear time
  ids.reserve(vocabulary.tokens.size());
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i)
    if (vocabulary.types[i] != TokenType::unused) ids.emplace_back(std::string(vocabulary.tokens[i]), i);
  return ids;
}

Json bpe_model(const Vocabulary& vocabulary, Json merges) {
  Json model{{"type", "BPE"},
             {"dropout", nullptr},
             {"unk_token", nullptr},
             {"continuing_subword_prefix", nullptr},
             {"end_of_word_suffix", nullptr},
             {"fuse_unk", false},
             {"byte_fallback", false},
             {"ignore_merges", false}};
  model["vocab"] = vocabulary_json(vocabulary);
  model["merges"] = std::move(merges);
  return model;
}

/// A TemplateProcessing that adds BOS and EOS around a text; null if neither is added.
Json post_processor(const GgufFile& file, const Vocabulary& vocabulary, Ends ends) {
  const auto bos = ends.bos ? named_token(file, vocabulary, "tokenizer.ggml.bos_token_id") : std::nullopt;
  const auto eos = ends.eos ? named_token(file, vocabulary, "tokenizer.ggml.eos_token_id") : std::nullopt;
  if (!bos && !eos) return nullptr;
  Json specials = Json::object();
  const auto part = [&](Json& template_, const std::optional<std::string>& token, int type_id) {
    if (!token) return;
    template_.push_back({{"SpecialToken", {{"id", *token}, {"type_id", type_id}}}});
    specials[*token] = {
        {"id", *token}, {"ids", Json::array({vocabulary.ids.at(*token)})}, {"tokens", Json::array({*token})}};
  };
  const auto text = [&](Json& template_, const char* id, int type_id) {
    part(template_, bos, type_id);
    template_.push_back({{"Sequence", {{"id", id}, {"type_id", type_id}}}});
    part(template_, eos, type_id);
  };
  Json single = Json::array(), pair = Json::array();
  text(single, "A", 0);
  text(pair, "A", 0);
  text(pair, "B", 1);
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", specials}};
}

/// The file's pre-tokenizer. Without a name it is llama.cpp's default, which may differ from the model's own rules.
const GgufPreTokenizer& pre_tokenizer_of(const GgufFile& file) {
  const auto name = file.find("tokenizer.ggml.pre") ? file.text("tokenizer.ggml.pre") : "default";
  if (const auto* pre = gguf_pre_tokenizer(name)) return *pre;
  fail(ErrorKind::input, {.cause = fmt::format("unknown pre-tokenizer \"{}\" (tokenizer.ggml.pre)", name),
                          .place = file.path().string(),
                          .remedy = "known names are " + gguf_pre_tokenizer_names()});
}

Json byte_level_tokenizer(const GgufFile& file, const Vocabulary& vocabulary, Ends ends) {
  const auto& pre = pre_tokenizer_of(file);
  const auto& merges = file.array("tokenizer.ggml.merges");
  for (std::size_t i = 0; i < merges.size(); ++i)
    if (!merges[i].is_string()) refuse_gguf(file, fmt::format("merge {} is not a string", i));
  Json model = bpe_model(vocabulary, merges);
  model["ignore_merges"] = pre.ignore_merges;
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added_tokens(file, vocabulary)},
          {"normalizer", pre.nfc ? Json{{"type", "NFC"}} : Json(nullptr)},
          {"pre_tokenizer", pre_tokenizer_json(pre)},
          {"post_processor", post_processor(file, vocabulary, ends)},
          {"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}}},
          {"model", std::move(model)}};
}

std::size_t code_points(std::string_view s) {
  return static_cast<std::size_t>(std::count_if(s.begin(), s.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

/// sentencepiece stores scores, not merges: every split of a piece into two pieces is a merge, best scores first.
Json merges_from_scores(const GgufFile& file, const Vocabulary& vocabulary) {
  const auto& scores = file.array("tokenizer.ggml.scores");
  if (scores.size() != vocabulary.tokens.size())
    refuse_gguf(file, "tokenizer.ggml.scores does not have one entry per token");
  struct Merge {
    std::string_view left, right;
    double score;
    std::int64_t left_id, right_id;
    std::size_t piece;
  };
  std::vector<Merge> merges;
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    if (vocabulary.types[i] != TokenType::normal && vocabulary.types[i] != TokenType::user_defined) continue;
    if (!scores[i].is_number() || !std::isfinite(scores[i].get<double>()))
      refuse_gguf(file, fmt::format("the score of token {} is not a number", i));
    const auto piece = vocabulary.tokens[i];
    if (piece.size() > kLongestPiece)
      refuse_gguf(file, fmt::format("token {} has {} bytes, more than {}", i, piece.size(), kLongestPiece));
    for (std::size_t cut = 1; cut < piece.size(); ++cut) {
      if ((piece[cut] & 0xc0) == 0x80) continue;
      const auto left = vocabulary.ids.find(piece.substr(0, cut)), right = vocabulary.ids.find(piece.substr(cut));
      if (left == vocabulary.ids.end() || right == vocabulary.ids.end()) continue;
      merges.push_back({left->first, right->first, scores[i].get<double>(), left->second, right->second, i});
    }
  }
  std::sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) {
    const auto rank = [](const Merge& m) { return std::tuple(m.score, code_points(m.left), code_points(m.right)); };
    if (rank(a) != rank(b)) return rank(a) > rank(b);
    return std::tuple(a.piece, a.left_id, a.right_id) < std::tuple(b.piece, b.left_id, b.right_id);
  });
  Json list = Json::array();
  for (const auto& m : merges) list.push_back(Json::array({m.left, m.right}));
  return list;
}

Json sentencepiece_tokenizer(const GgufFile& file, const Vocabulary& vocabulary, Ends ends) {
  constexpr auto kSpace = "\u2581";
  const bool prefix = flag(file, "tokenizer.ggml.add_space_prefix").value_or(true);
  Json model = bpe_model(vocabulary, merges_from_scores(file, vocabulary));
  const auto unknown = std::find(vocabulary.types.begin(), vocabulary.types.end(), TokenType::unknown);
  if (unknown != vocabulary.types.end())
    model["unk_token"] = vocabulary.tokens[static_cast<std::size_t>(unknown - vocabulary.types.begin())];
  model["fuse_unk"] = true;
  model["byte_fallback"] = true;
  Json replace{{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpace}};
  Json normalizer = prefix ? Json{{"type", "Sequence"},
                                  {"normalizers", Json::array({{{"type", "Prepend"}, {"prepend", kSpace}}, replace})}}
                           : replace;
  Json decoders = Json::array({{{"type", "Replace"}, {"pattern", {{"String", kSpace}}}, {"content", " "}},
                               {{"type", "ByteFallback"}},
                               {{"type", "Fuse"}}});
  if (prefix) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added_tokens(file, vocabulary)},
          {"normalizer", normalizer},
          {"pre_tokenizer", nullptr},
          {"post_processor", post_processor(file, vocabulary, ends)},
          {"decoder", {{"type", "Sequence"}, {"decoders", decoders}}},
          {"model", std::move(model)}};
}

/// One template or a list of named ones; null if there is none.
Json chat_template(const GgufFile& file) {
  constexpr std::string_view kKey = "tokenizer.chat_template";
  Json named = Json::array();
  for (const auto& [key, value] : file.values()) {
    if (!key.starts_with(kKey) || !value.is_string()) continue;
    if (key.size() == kKey.size()) named.push_back({{"name", "default"}, {"template", value}});
    if (key.size() > kKey.size() && key[kKey.size()] == '.')
      named.push_back({{"name", key.substr(kKey.size() + 1)}, {"template", value}});
  }
  if (named.empty()) return nullptr;
  if (named.size() == 1 && named[0]["name"] == "default") return named[0]["template"];
  return named;
}

}  // namespace

TokenizerFiles gguf_tokenizer(const GgufFile& file) {
  const auto kind = file.text("tokenizer.ggml.model");
  const auto vocabulary = read_vocabulary(file);
  TokenizerFiles files{.tokens = static_cast<std::int64_t>(vocabulary.tokens.size())};
  Ends ends;
  if (kind == "gpt2") {
    ends = ends_of(file, {.bos = pre_tokenizer_of(file).add_bos});
    files.tokenizer = byte_level_tokenizer(file, vocabulary, ends);
  } else if (kind == "llama") {
    ends = ends_of(file, {.bos = true});
    files.tokenizer = sentencepiece_tokenizer(file, vocabulary, ends);
  } else {
    fail(ErrorKind::input,
         {.cause = fmt::format("tokenizer model \"{}\" (tokenizer.ggml.model) is not supported", kind),
          .place = file.path().string(),
          .remedy = "supported models are gpt2 (byte-level BPE) and llama (sentencepiece)"});
  }
  files.special_tokens = Json::object();
  for (const auto& [name, key] :
       {std::pair{"bos_token", "bos"}, {"eos_token", "eos"}, {"unk_token", "unknown"}, {"pad_token", "padding"}})
    if (const auto token = named_token(file, vocabulary, fmt::format("tokenizer.ggml.{}_token_id", key)))
      files.special_tokens[name] = *token;
  files.config = {{"add_bos_token", ends.bos}, {"add_eos_token", ends.eos}};
  files.config.update(files.special_tokens);
  if (auto text = chat_template(file); !text.is_null()) files.config["chat_template"] = std::move(text);
  files.config["clean_up_tokenization_spaces"] = false;
  const auto architecture = file.find("general.architecture") ? file.text("general.architecture") : "";
  if (file.find(architecture + ".context_length"))
    files.config["model_max_length"] = file.integer(architecture + ".context_length");
  files.config["tokenizer_class"] = "PreTrainedTokenizerFast";
  return files;
}

}  // namespace qtrain
