#include "core/secrets.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

namespace qtrain {
namespace {

using Words = std::vector<std::string>;

/// Words that mark a name as secret anywhere in it.
constexpr std::array<std::string_view, 17> kAnywhere{
    "password",      "passwords", "passwd", "passphrase", "secret",  "secrets", "credential", "credentials", "apikey",
    "authorization", "bearer",    "cookie", "cookies",    "headers", "webhook", "accesskey",  "privatekey"};
/// Words that mark a name as secret only at its end.
constexpr std::array<std::string_view, 7> kAtEnd{"pass", "pwd", "auth", "token", "dsn", "signature", "sig"};
/// Two consecutive words that mark a name as secret anywhere in it: "api_key", "access_key_id", "auth_tokens".
struct Pair {
  std::string_view first, second;
};
constexpr std::array<Pair, 23> kPairs{
    {{"api", "key"},        {"api", "keys"},       {"access", "key"},        {"access", "keys"}, {"private", "key"},
     {"auth", "key"},       {"encryption", "key"}, {"account", "key"},       {"ssh", "key"},     {"signing", "key"},
     {"wandb", "key"},      {"hf", "key"},         {"connection", "string"}, {"auth", "tokens"}, {"access", "tokens"},
     {"api", "tokens"},     {"hub", "tokens"},     {"hf", "tokens"},         {"auth", "header"}, {"http", "header"},
     {"request", "header"}, {"shared", "key"},     {"service", "key"}}};
/// Words before "token" that mean a token of a vocabulary.
constexpr std::array<std::string_view, 34> kOfVocabulary{
    "pad",    "eos",     "bos", "unk",        "sep",    "cls",    "mask",     "image", "video",
    "audio",  "eot",     "eom", "start",      "end",    "think",  "thinking", "user",  "assistant",
    "system", "special", "new", "additional", "extra",  "stop",   "first",    "last",  "per",
    "next",   "bot",     "boi", "eoi",        "prefix", "suffix", "each"};

template <class List>
bool has(const List& list, std::string_view word) {
  return std::ranges::find(list, word) != list.end();
}

/// Splits "hubToken", "HUB_TOKEN" and "hub-token" into "hub", "token".
Words words_of(std::string_view name) {
  Words words(1);
  bool was_small = false;
  for (const char c : name) {
    const auto letter = static_cast<unsigned char>(c);
    const bool is_large = std::isupper(letter) != 0;
    if (std::isalnum(letter) == 0 || (is_large && was_small)) words.emplace_back();
    if (std::isalnum(letter) != 0) words.back() += static_cast<char>(std::tolower(letter));
    was_small = std::islower(letter) != 0 || std::isdigit(letter) != 0;
  }
  std::erase(words, "");
  return words;
}

bool is_trivial(const Json& value) {
  const bool is_blank = value.is_string() && value.get_ref<const std::string&>().empty();
  return is_blank || value.is_null() || value.is_boolean() || (value.is_structured() && value.empty());
}

constexpr std::string_view kEndsOfUrl = " \t\r\n\"'<>`";

/// The end of the part of a URL that starts at `begin`: one of `ends`, or the end of the URL.
std::size_t end_of_part(std::string_view text, std::size_t begin, std::string_view ends) {
  const std::string all = std::string(ends).append(kEndsOfUrl);
  return std::min(text.find_first_of(all, begin), text.size());
}

bool begins_scheme(std::string_view text, std::size_t colon) {
  return colon > 0 && std::isalnum(static_cast<unsigned char>(text[colon - 1])) != 0;
}

/// Redacts the values of secret names in a query, "name=value&...".
std::string without_secrets(std::string_view query) {
  std::string out;
  while (!query.empty()) {
    const std::size_t end = std::min(query.find_first_of("&;"), query.size()), equals = query.find('=');
    const bool secret = equals < end && end > equals + 1 && is_secret_name(query.substr(0, equals));
    out += secret ? std::string(query.substr(0, equals + 1)).append(kRedacted) : std::string(query.substr(0, end));
    if (end < query.size()) out += query[end];
    query.remove_prefix(std::min(end + 1, query.size()));
  }
  return out;
}

/// Redacts the part of a URL that follows "://".
std::string url_rest(std::string_view rest) {
  const std::size_t authority = end_of_part(rest, 0, "/?#");
  const std::size_t at = rest.substr(0, authority).rfind('@');
  std::string out;
  if (at != std::string_view::npos) {
    out += kRedacted;
    rest.remove_prefix(at);
  }
  const std::size_t query = std::min(rest.find('?'), rest.size());
  out += rest.substr(0, std::min(query + 1, rest.size()));
  return query < rest.size() ? out + without_secrets(rest.substr(query + 1)) : out;
}

/// Redacts credentials in URLs, and the value of "NAME=value" or "Name: value" if the name is secret.
Json text_without_secrets(std::string_view text) {
  const std::size_t end = text.find_first_of("=: ");
  if (end == std::string_view::npos || end + 1 >= text.size() || text[end] == ' ' ||
      !is_secret_name(text.substr(0, end)))
    return without_credentials(text);
  return std::string(text.substr(0, end + 1)).append(kRedacted);
}

/// The name that an object gives for its "value"; "value" if it gives none.
std::string name_within(const Json& object) {
  for (const char* key : {"name", "key"})
    if (const auto it = object.find(key); it != object.end() && it->is_string()) return it->get<std::string>();
  return "value";
}

}  // namespace

bool is_secret_name(std::string_view name) {
  const Words words = words_of(name);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool last = i + 1 == words.size();
    if (has(kAnywhere, words[i])) return true;
    if (!last &&
        std::ranges::any_of(kPairs, [&](const Pair& p) { return p.first == words[i] && p.second == words[i + 1]; }))
      return true;
    if (last && has(kAtEnd, words[i])) return i == 0 || words[i] != "token" || !has(kOfVocabulary, words[i - 1]);
  }
  return false;
}

Json redacted(std::string_view name, const Json& value) {
  if (is_secret_name(name) && !is_trivial(value)) return kRedacted;
  if (value.is_string()) return text_without_secrets(value.get_ref<const std::string&>());
  if (value.is_array()) {
    Json out = Json::array();
    for (const Json& element : value) out.push_back(redacted("", element));
    return out;
  }
  if (!value.is_object()) return value;
  const std::string variable = name_within(value);
  Json out = Json::object();
  for (const auto& [key, member] : value.items()) out[key] = redacted(key == "value" ? variable : key, member);
  return out;
}

std::string without_credentials(std::string_view text) {
  constexpr std::string_view kMark = "://";
  std::string out;
  for (std::size_t mark = text.find(kMark); mark != std::string_view::npos; mark = text.find(kMark)) {
    const std::size_t begin = mark + kMark.size();
    const std::size_t end = begins_scheme(text, mark) ? end_of_part(text, begin, "") : begin;
    out += text.substr(0, begin);
    out += url_rest(text.substr(begin, end - begin));
    text.remove_prefix(end);
  }
  return out.append(text);
}

}  // namespace qtrain
