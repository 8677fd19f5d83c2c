#include "core/secrets.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <vector>

#include "core/formats/json_object.h"

namespace qtrain {
namespace {

using Words = std::vector<std::string>;

/// Words that mark a name as secret anywhere in it.
constexpr std::array<std::string_view, 17> kAnywhere{
    "password",      "passwords", "passwd", "passphrase", "secret",  "secrets", "credential", "credentials", "apikey",
    "authorization", "bearer",    "cookie", "cookies",    "headers", "webhook", "accesskey",  "privatekey"};
/// Words that mark a name as secret only at its end.
constexpr std::array<std::string_view, 19> kAtEnd{
    "pass",  "pwd", "pw",  "auth", "oauth",    "token",    "dsn",      "signature", "sig", "pat",
    "creds", "jwt", "sas", "otp",  "passcode", "userpass", "mnemonic", "dbpass",    "cred"};
/// Endings of a word that mark a name as secret anywhere in it: "PGPASSWORD", "clientsecret".
constexpr std::array<std::string_view, 7> kWordEndings{"password",    "passwords", "passwd", "passphrase",
                                                       "credentials", "secret",    "apikey"};
/// What comes before "token" in a word that names a secret: "hftoken".
constexpr std::array<std::string_view, 16> kBeforeToken{"my",      "hf",     "hub",     "api", "access", "auth",
                                                        "refresh", "bearer", "session", "git", "gh",     "gl",
                                                        "github",  "gitlab", "wandb",   "id"};
/// The last words of secret environment variables, which have no small letters: "KAGGLE_KEY".
constexpr std::array<std::string_view, 3> kOfVariables{"key", "keys", "token"};
/// Two consecutive words that mark a name as secret anywhere in it: "api_key", "access_key_id", "auth_tokens".
struct Pair {
  std::string_view first, second;
};
constexpr std::array<Pair, 36> kPairs{
    {{"api", "key"},           {"api", "keys"},    {"access", "key"},       {"access", "keys"},
     {"private", "key"},       {"auth", "key"},    {"encryption", "key"},   {"account", "key"},
     {"ssh", "key"},           {"signing", "key"}, {"wandb", "key"},        {"hf", "key"},
     {"connection", "string"}, {"auth", "tokens"}, {"access", "tokens"},    {"api", "tokens"},
     {"hub", "tokens"},        {"hf", "tokens"},   {"auth", "header"},      {"http", "header"},
     {"request", "header"},    {"shared", "key"},  {"service", "key"},      {"master", "key"},
     {"license", "key"},       {"hmac", "key"},    {"tls", "key"},          {"ssl", "key"},
     {"kaggle", "key"},        {"neptune", "key"}, {"comet", "key"},        {"openai", "key"},
     {"anthropic", "key"},     {"root", "key"},    {"subscription", "key"}, {"refresh", "tokens"}}};
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

/// The same words before "token" also come before tokens of services: "slack_bot_token".
constexpr std::array<std::string_view, 2> kOfServices{"bot", "user"};

bool is_of(int (*kind)(int), char c) {
  return kind(static_cast<unsigned char>(c)) != 0;
}

/// Splits "hubToken", "HUBToken", "HUB_TOKEN" and "hub-token2" into "hub", "token".
Words words_of(std::string_view name) {
  Words words(1);
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i], before = i > 0 ? name[i - 1] : '_', after = i + 1 < name.size() ? name[i + 1] : '_';
    const bool begins = is_of(std::isupper, c) && (!is_of(std::isupper, before) || is_of(std::islower, after));
    if (begins || !is_of(std::isalpha, c)) words.emplace_back();
    if (is_of(std::isalpha, c)) words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  std::erase(words, "");
  return words;
}

bool is_variable(std::string_view name) {
  return std::ranges::none_of(name, [](char c) { return is_of(std::islower, c); });
}

/// Whether a word that ends in "token" names a token of a service.
bool is_glued_token(std::string_view word) {
  constexpr std::string_view kToken = "token";
  return word.ends_with(kToken) && has(kBeforeToken, word.substr(0, word.size() - kToken.size()));
}

/// Whether the last word, which is in kAtEnd, is about a token of a vocabulary.
bool is_of_vocabulary(const Words& words) {
  const std::size_t n = words.size();
  if (n < 2 || words[n - 1] != "token" || !has(kOfVocabulary, words[n - 2])) return false;
  return n == 2 || !has(kOfServices, words[n - 2]);
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

/// Replaces %XX by the character.
std::string decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned code = 0;
    const char* digits = text.data() + i + 1;
    const bool is_code =
        text[i] == '%' && i + 2 < text.size() && std::from_chars(digits, digits + 2, code, 16).ptr == digits + 2;
    out += is_code ? static_cast<char>(code) : text[i];
    if (is_code) i += 2;
  }
  return out;
}

bool is_secret_parameter(std::string_view name) {
  const std::string plain = decoded(name);
  return plain == "key" || is_secret_name(plain);
}

/// Redacts the values of secret names in a query or fragment, "name=value&...".
std::string without_secrets(std::string_view query) {
  std::string out;
  while (!query.empty()) {
    const std::size_t end = std::min(query.find_first_of("&;#?"), query.size());
    const std::string_view parameter = query.substr(0, end);
    const std::size_t value = std::min(parameter.find('='), end) + 1;
    const bool secret = value < end && is_secret_parameter(parameter.substr(0, value - 1));
    out += secret ? std::string(parameter.substr(0, value)).append(kRedacted) : std::string(parameter);
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
  const std::size_t query = std::min(rest.find_first_of("?#"), rest.size());
  out += rest.substr(0, std::min(query + 1, rest.size()));
  return query < rest.size() ? out + without_secrets(rest.substr(query + 1)) : out;
}

/// Whether a word announces that the next one is secret: "--token", "Bearer".
bool announces_secret(std::string_view word) {
  if (word.starts_with('-')) return word.find('=') == word.npos && is_secret_name(word);
  return word == "Bearer" || word == "bearer" || word == "Basic";
}

/// Redacts credentials in URLs, and the value of "NAME=value" or "Name: value" if the name is secret, also among other
/// words, and what follows "--token".
Json text_without_secrets(std::string_view text) {
  const std::size_t end = text.find_first_of("=: ");
  if (end != std::string_view::npos && end + 1 < text.size() && text[end] != ' ' && is_secret_name(text.substr(0, end)))
    return std::string(text.substr(0, end + 1)).append(kRedacted);
  std::string out;
  bool announced = false;
  while (!text.empty()) {
    const std::size_t begin = std::min(text.find_first_not_of(" \t\n"), text.size()),
                      stop = std::min(text.find_first_of(" \t\n", begin), text.size());
    const std::string_view word = text.substr(begin, stop - begin);
    const std::size_t equals = std::min(word.find('='), word.size());
    const bool gives = equals + 1 < word.size() && is_secret_name(word.substr(0, equals));
    out += text.substr(0, begin);
    out += announced && !word.empty() ? kRedacted : gives ? word.substr(0, equals + 1) : word;
    if (gives && !announced) out += kRedacted;
    announced = announces_secret(word);
    text.remove_prefix(stop);
  }
  return without_credentials(out);
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
  if (words.empty()) return false;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (has(kAnywhere, words[i])) return true;
    if (std::ranges::any_of(kWordEndings, [&](std::string_view ending) { return words[i].ends_with(ending); }))
      return true;
    const auto is_here = [&](const Pair& p) { return p.first == words[i] && p.second == words[i + 1]; };
    if (i + 1 < words.size() && std::ranges::any_of(kPairs, is_here)) return true;
  }
  const std::string& last = words.back();
  if (is_glued_token(last)) return true;
  if (is_variable(name) && words.size() > 1 && has(kOfVariables, last)) return true;
  return has(kAtEnd, last) && !is_of_vocabulary(words);
}

Json redacted(std::string_view name, const Json& value) {
  if (is_secret_name(name) && !is_trivial(value)) return kRedacted;
  if (value.is_string()) return text_without_secrets(value.get_ref<const std::string&>());
  if (value.is_array()) {
    Json out = Json::array();
    bool announced = false;
    for (const Json& element : value) {
      out.push_back(announced && element.is_string() ? Json(kRedacted) : redacted("", element));
      announced = element.is_string() && announces_secret(element.get_ref<const std::string&>());
    }
    return out;
  }
  if (!value.is_object()) return value;
  const std::string variable = name_within(value);
  JsonObject out;
  out.reserve(value.size());
  for (const auto& [key, member] : value.items()) out.add(key, redacted(key == "value" ? variable : key, member));
  return out.take();
}

Json urls_without_credentials(const Json& value) {
  if (value.is_string()) return without_credentials(value.get_ref<const std::string&>());
  Json out = value;
  if (value.is_structured())
    for (Json& part : out) part = urls_without_credentials(part);
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
