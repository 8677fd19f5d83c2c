#include "data/tokenizer/load.h"

#include <algorithm>
#include <charconv>

#include "data/tokenizer/json_tokenizer.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNames[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                  "pad_token", "cls_token", "mask_token"};

Json read_if_there(const fs::path& file) {
  if (!fs::exists(file)) return Json::object();
  Json json = read_json(file, {.duplicate_keys = true});
  if (!json.is_object()) fail(ErrorKind::input, {.cause = "expected an object", .place = file.string()});
  return json;
}

// A special token is a string or an object with `content`; nothing else names one.
std::optional<AddedToken> special_token(const Json& v) {
  AddedToken t{.special = true, .normalized = false};
  if (v.is_object() && v.contains("content"))
    t = parse_added_token(v);
  else if (v.is_string())
    t.content = v;
  t.special = true;
  return t.content.empty() ? std::nullopt : std::optional(t);
}

class SettingsReader {
 public:
  explicit SettingsReader(TokenizerSettings& settings) : s_(settings) {}

  void read() {
    Json special = s_.config;
    if (s_.config.contains("added_tokens_decoder")) {
      add_numbered(s_.config["added_tokens_decoder"]);
    } else {
      add_listed(read_if_there(s_.folder / "added_tokens.json"));
      special.update(read_if_there(s_.folder / "special_tokens_map.json"));
    }
    for (const char* name : kNames)
      if (special.contains(name)) add_named(name, special[name]);
    for (const auto& [key, value] : special.items())
      if (key.ends_with("_token") && !s_.named.contains(key)) add_named(key, value);
    for (const char* key : {"extra_special_tokens", "additional_special_tokens"})
      if (special.contains(key)) add_extra(special[key]);
  }

 private:
  // {"7": {"content": ...}}
  void add_numbered(const Json& tokens) {
    std::vector<AddedToken> found;
    for (const auto& [key, value] : tokens.items()) {
      AddedToken t = parse_added_token(value);
      std::from_chars(key.data(), key.data() + key.size(), t.id);
      found.push_back(std::move(t));
    }
    add_by_id(std::move(found));
  }
  // {"<token>": 7}
  void add_listed(const Json& tokens) {
    std::vector<AddedToken> found;
    for (const auto& [key, value] : tokens.items())
      if (value.is_number_integer())
        found.push_back({.id = value.get<std::int32_t>(), .content = key, .special = false, .normalized = true});
    add_by_id(std::move(found));
  }
  void add_by_id(std::vector<AddedToken> tokens) {
    std::stable_sort(tokens.begin(), tokens.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
    s_.added.insert(s_.added.end(), std::make_move_iterator(tokens.begin()), std::make_move_iterator(tokens.end()));
  }
  void add_named(const std::string& name, const Json& value) {
    const auto token = special_token(value);
    if (!token) return;
    s_.named.emplace(name, token->content);
    add_if_new(*token);
  }
  // A list, or an object of named ones.
  void add_extra(const Json& tokens) {
    if (tokens.is_object())
      for (const auto& [name, value] : tokens.items()) add_named(name, value);
    if (tokens.is_array())
      for (const Json& value : tokens)
        if (const auto token = special_token(value)) add_if_new(*token);
  }
  void add_if_new(const AddedToken& token) {
    const bool known =
        std::any_of(s_.added.begin(), s_.added.end(), [&](const auto& t) { return t.content == token.content; });
    if (!known) s_.added.push_back(token);
    if (!known) s_.added.back().by_name = true;
  }

  TokenizerSettings& s_;
};

std::unique_ptr<Tokenizer> build_json_tokenizer(const Json& json, const TokenizerSettings& settings) {
  auto tokenizer = std::make_unique<JsonTokenizer>(json, settings.added);
  SpecialTokens special = resolve_special(settings, *tokenizer);
  const auto among = [](const std::vector<std::int32_t>& ids, std::optional<std::int32_t> id) {
    return id && std::find(ids.begin(), ids.end(), *id) != ids.end();
  };
  special.add_bos = among(tokenizer->frame().before, special.bos_id);
  special.add_eos = among(tokenizer->frame().after, special.eos_id);
  tokenizer->set_special(std::move(special));
  return tokenizer;
}

// Errors of the pieces get the file as their place.
template <class F>
auto reading(const fs::path& file, F&& f) {
  try {
    return f();
  } catch (const nlohmann::json::exception& e) {
    fail(ErrorKind::input,
         {.cause = std::string("not what a tokenizer file holds: ") + e.what(), .place = file.string()});
  } catch (const Error& e) {
    const std::string& place = e.text().place;
    if (place.starts_with(file.string())) throw;
    fail(e.kind(), {.cause = e.text().cause,
                    .place = file.string() + (place.empty() ? "" : ": " + place),
                    .remedy = e.text().remedy});
  }
}

}  // namespace

TokenizerSettings read_tokenizer_settings(const fs::path& folder) {
  const fs::path file = folder / "tokenizer_config.json";
  TokenizerSettings s{.folder = folder, .config = read_if_there(file), .named = {}, .added = {}};
  reading(file, [&] { SettingsReader(s).read(); });
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
  const fs::path json = folder / "tokenizer.json", model = folder / "tokenizer.model";
  if (fs::exists(json))
    return reading(json, [&] { return build_json_tokenizer(read_json(json, kTokenizerRules), settings); });
  if (fs::exists(model)) return load_sentencepiece(settings);
  fail(ErrorKind::input, {.cause = "no tokenizer.json and no tokenizer.model",
                          .place = folder.string(),
                          .remedy = "put the model's tokenizer files into the folder"});
}

}  // namespace qtrain
