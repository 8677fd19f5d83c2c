#include "text/tokenizer/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <unordered_map>
#include <unordered_set>

#include "core/formats/json_items.h"
#include "core/keyed_hash.h"
#include "core/os/paths.h"
#include "text/tokenizer/json_tokenizer.h"
#include "text/tokenizer/sentencepiece.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNames[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                  "pad_token", "cls_token", "mask_token"};

Json read_if_there(const fs::path& file) {
  if (!path_exists(file)) return Json::object();
  Json json = read_json(file, {.duplicate_keys = true});
  if (!json.is_object()) fail(ErrorKind::input, {.cause = "expected an object", .place = file.string()});
  return json;
}

// A special token is a string or an object with `content`; other values are ignored.
std::optional<AddedToken> special_token(const JsonView& v) {
  AddedToken t{.special = true, .normalized = false};
  if (v.json().is_object() && v.find("content"))
    t = parse_added_token(v);
  else if (v.json().is_string())
    t.content = v.text();
  t.special = true;
  return t.content.empty() ? std::nullopt : std::optional(t);
}

/// Values of two files in the order of their first key, each with its file.
using NamedValues = std::vector<std::pair<std::string, std::pair<JsonView, fs::path>>>;

class SettingsReader {
 public:
  SettingsReader(TokenizerSettings& settings, fs::path file) : s_(settings), file_(std::move(file)) {}

  void read() {
    const JsonView config(s_.config);
    const fs::path listed = s_.folder / "added_tokens.json", map = s_.folder / "special_tokens_map.json";
    put_values(config, file_);
    Json more_special;  // keeps the values alive, which are views
    if (const auto numbered = config.find("added_tokens_decoder")) {
      reading(file_, [&] { add_numbered(*numbered); });
    } else {
      const Json tokens = read_if_there(listed);
      reading(listed, [&] { add_listed(tokens); });
      more_special = read_if_there(map);
      put_values(more_special, map);
    }
    for (const char* name : kNames)
      if (const auto at = find(name); at != values_.end()) add_value(at, name);
    for (auto at = values_.begin(); at != values_.end(); ++at)
      if (at->first.ends_with("_token") && !s_.named.contains(at->first)) add_value(at, at->first);
    for (const char* key : {"extra_special_tokens", "additional_special_tokens"})
      if (const auto at = find(key); at != values_.end())
        reading(at->second.second, [&] { add_extra(at->second.first); });
  }

 private:
  NamedValues::iterator find(std::string_view key) {
    const auto at = places_.find(std::string(key));
    return at == places_.end() ? values_.end() : values_.begin() + static_cast<std::ptrdiff_t>(at->second);
  }
  void put_values(const JsonView& object, const fs::path& file) {
    for (const auto& [key, value] : object.object()) {
      const std::pair view(JsonView(value, key), file);
      if (const auto at = find(key); at != values_.end())
        at->second = view;
      else
        places_.emplace(key, values_.size()), values_.emplace_back(key, view);
    }
  }
  void add_value(NamedValues::const_iterator at, const std::string& name) {
    reading(at->second.second, [&] { add_named(name, at->second.first); });
  }
  // Format: {"7": {"content": ...}}
  void add_numbered(const JsonView& tokens) {
    std::vector<AddedToken> found;
    for (const auto& [key, value] : tokens.object()) {
      AddedToken t = parse_added_token(JsonView(value, tokens.path() + "." + key));
      std::from_chars(key.data(), key.data() + key.size(), t.id);
      found.push_back(std::move(t));
    }
    add_by_id(std::move(found));
  }
  // Format: {"<token>": 7}
  void add_listed(const JsonView& tokens) {
    std::vector<AddedToken> found;
    for (const auto& [key, value] : tokens.object()) {
      const auto id = JsonView(value, key).integer({0, kMaxTokenId - 1});
      found.push_back({.id = static_cast<std::int32_t>(id), .content = key, .special = false, .normalized = true});
    }
    add_by_id(std::move(found));
  }
  void add_by_id(std::vector<AddedToken> tokens) {
    require_distinct_ids(tokens);
    std::stable_sort(tokens.begin(), tokens.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
    for (const AddedToken& t : tokens) contents_.insert(t.content);
    s_.added.insert(s_.added.end(), std::make_move_iterator(tokens.begin()), std::make_move_iterator(tokens.end()));
  }
  void add_named(const std::string& name, const JsonView& value) {
    const auto token = special_token(value);
    if (!token) return;
    s_.named.emplace(name, token->content);
    add_if_new(*token);
  }
  // A list, or an object of named tokens.
  void add_extra(const JsonView& tokens) {
    if (tokens.json().is_object())
      for (const auto& [name, value] : tokens.object()) add_named(name, JsonView(value, tokens.path() + "." + name));
    if (tokens.json().is_array())
      tokens.each([&](const JsonView& value) {
        if (const auto token = special_token(value)) add_if_new(*token);
      });
  }
  void add_if_new(const AddedToken& token) {
    if (!contents_.insert(token.content).second) return;
    s_.added.push_back(token);
    s_.added.back().by_name = true;
  }

  TokenizerSettings& s_;
  const fs::path file_;
  NamedValues values_;
  // Files may have hundreds of thousands of keys and tokens, so none is searched for one by one.
  std::unordered_map<std::string, std::size_t, KeyedHash> places_ = {};  ///< of the keys in `values_`
  std::unordered_set<std::string, KeyedHash> contents_ = {};             ///< of the added tokens
};

std::unique_ptr<Tokenizer> build_json_tokenizer(const fs::path& file, const TokenizerSettings& settings) {
  std::vector<AddedToken> listed;
  const Json json = read_tokenizer_file(file, listed);
  auto tokenizer = std::make_unique<JsonTokenizer>(json, std::move(listed), settings.added);
  if (settings.flag("split_special_tokens").value_or(false)) tokenizer->split_special_tokens();
  SpecialTokens special = resolve_special(settings, *tokenizer);
  const auto among = [](const std::vector<std::int32_t>& ids, std::optional<std::int32_t> id) {
    return id && std::find(ids.begin(), ids.end(), *id) != ids.end();
  };
  special.add_bos = among(tokenizer->frame().before, special.bos_id);
  special.add_eos = among(tokenizer->frame().after, special.eos_id);
  tokenizer->set_special(std::move(special));
  return tokenizer;
}

}  // namespace

Json read_tokenizer_file(const fs::path& file, std::vector<AddedToken>& added) {
  const JsonItems items{.list = "added_tokens", .take = [&](const Json& token) {
                          const JsonView view(token, fmt::format("added_tokens[{}]", added.size()));
                          added.push_back(parse_added_token(view));
                          if (const auto id = view.find("id"))
                            added.back().id = static_cast<std::int32_t>(id->integer({0, kMaxTokenId - 1}));
                        }};
  Json json = read_json_items(file, items, kTokenizerRules);
  if (const auto others = JsonView(json).find("added_tokens")) (void)others->list();  // throws unless it is a list
  require_distinct_ids(added);
  return json;
}

TokenizerSettings read_tokenizer_settings(const fs::path& folder) {
  const fs::path file = folder / "tokenizer_config.json";
  TokenizerSettings s{.folder = folder, .config = read_if_there(file), .named = {}, .added = {}};
  SettingsReader(s, file).read();
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

std::unique_ptr<Tokenizer> load_tokenizer(const fs::path& folder, const std::map<std::string, std::string>& named) {
  TokenizerSettings settings = read_tokenizer_settings(folder);
  for (const auto& [name, token] : named) settings.named[name] = token;
  const fs::path json = folder / "tokenizer.json", model = folder / "tokenizer.model";
  if (path_exists(json)) return reading(json, [&] { return build_json_tokenizer(json, settings); });
  if (path_exists(model)) return load_sentencepiece(settings);
  fail(ErrorKind::input, {.cause = "neither tokenizer.json nor tokenizer.model found",
                          .place = folder.string(),
                          .remedy = "put the model's tokenizer files into the folder"});
}

}  // namespace qtrain
