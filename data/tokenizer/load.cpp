#include "data/tokenizer/load.h"

#include <algorithm>
#include <charconv>

#include "data/tokenizer/json_tokenizer.h"
#include "data/tokenizer/unicode.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr JsonRules kTokenizerRules{.duplicate_keys = true, .max_bytes = std::uint64_t{256} << 20};

Json read_if_there(const fs::path& file) { return fs::exists(file) ? read_json(file, {.duplicate_keys = true}) : Json::object(); }

// A token is a string or an object with `content`.
std::string token_text(const Json& v) {
  if (v.is_string()) return v;
  return v.is_object() && v.contains("content") && v["content"].is_string() ? v["content"].get<std::string>() : "";
}

void collect_named(const Json& json, TokenizerSettings& s) {
  for (const auto& [key, value] : json.items())
    if (key.ends_with("_token") && !s.named.contains(key))
      if (const std::string text = token_text(value); !text.empty()) s.named.emplace(key, text);
}

void collect_added(TokenizerSettings& s) {
  const auto know = [&](const std::string& content) {
    return std::any_of(s.added.begin(), s.added.end(), [&](const AddedToken& t) { return t.content == content; });
  };
  if (s.config.contains("added_tokens_decoder"))
    for (const auto& [key, value] : s.config["added_tokens_decoder"].items()) {
      AddedToken t = parse_added_token(value);
      std::from_chars(key.data(), key.data() + key.size(), t.id);
      s.added.push_back(std::move(t));
    }
  for (const auto& [name, content] : s.named)
    if (!know(content)) s.added.push_back({.content = content, .special = true, .normalized = false});
}

std::unique_ptr<Tokenizer> load_json_tokenizer(const TokenizerSettings& settings) {
  const fs::path file = settings.folder / "tokenizer.json";
  const Json json = read_json(file, kTokenizerRules);
  try {
    auto tokenizer = std::make_unique<JsonTokenizer>(json, settings.added);
    SpecialTokens special = resolve_special(settings, *tokenizer);
    special.add_bos = special.bos_id && std::count(tokenizer->frame().before.begin(), tokenizer->frame().before.end(), *special.bos_id);
    special.add_eos = special.eos_id && std::count(tokenizer->frame().after.begin(), tokenizer->frame().after.end(), *special.eos_id);
    tokenizer->set_special(std::move(special));
    return tokenizer;
  } catch (const nlohmann::json::exception& e) {
    fail(ErrorKind::input, {.cause = std::string("not a tokenizer.json: ") + e.what(), .place = file.string()});
  } catch (const Error& e) {
    fail(e.kind(), {.cause = e.text().cause, .place = file.string() + (e.text().place.empty() ? "" : ": " + e.text().place), .remedy = e.text().remedy});
  }
}

}  // namespace

TokenizerSettings read_tokenizer_settings(const fs::path& folder) {
  TokenizerSettings s{.folder = folder, .config = read_if_there(folder / "tokenizer_config.json"), .named = {}, .added = {}};
  collect_named(s.config, s);
  collect_named(read_if_there(folder / "special_tokens_map.json"), s);
  collect_added(s);
  return s;
}

SpecialTokens resolve_special(const TokenizerSettings& settings, const Tokenizer& tokenizer) {
  SpecialTokens special{.named = settings.named};
  const auto id = [&](const char* name) {
    const auto it = settings.named.find(name);
    return it == settings.named.end() ? std::nullopt : tokenizer.id_of(it->second);
  };
  special.bos_id = id("bos_token");
  special.eos_id = id("eos_token");
  special.pad_id = id("pad_token");
  special.unk_id = id("unk_token");
  return special;
}

std::unique_ptr<Tokenizer> load_tokenizer(const fs::path& folder) {
  const TokenizerSettings settings = read_tokenizer_settings(folder);
  if (fs::exists(folder / "tokenizer.json")) return load_json_tokenizer(settings);
  if (fs::exists(folder / "tokenizer.model")) return load_sentencepiece(settings);
  fail(ErrorKind::input, {.cause = "no tokenizer.json and no tokenizer.model", .place = folder.string(), .remedy = "put the model's tokenizer files into the folder"});
}

// The text of all ids so far is decoded again: answers are short, and decoders look at neighbours.
std::string StreamDecoder::push(std::int32_t id) {
  ids_.push_back(id);
  std::string text = tokenizer_.decode(ids_, options_);
  while (text.ends_with("\xEF\xBF\xBD")) text.resize(text.size() - 3);
  if (text.size() <= shown_) return {};
  std::string fresh = text.substr(shown_);
  shown_ = text.size();
  return fresh;
}

std::string StreamDecoder::finish() {
  const std::string text = tokenizer_.decode(ids_, options_);
  return text.size() > shown_ ? text.substr(shown_) : "";
}

}  // namespace qtrain
