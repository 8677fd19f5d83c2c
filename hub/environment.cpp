#include "hub/environment.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <string_view>

#include "core/error.h"
#include "core/os/file.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

std::string variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value ? value : "";
}

std::string first_of(std::initializer_list<const char*> names, const std::string& otherwise) {
  for (const char* name : names)
    if (std::string value = variable(name); !value.empty()) return value;
  return otherwise;
}

/// As Python's expanduser and expandvars: variables that are not set stay as they are.
fs::path expanded(std::string text) {
  if (text == "~" || text.starts_with("~/")) text = variable("HOME") + text.substr(1);
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const bool braces = text.compare(at, 2, "${") == 0;
    std::size_t begin = at + (braces ? 2 : 1), end = begin;
    if (text[at] == '$')
      while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_')) ++end;
    const bool closed = !braces || (end < text.size() && text[end] == '}');
    const std::string name = text[at] == '$' && closed ? text.substr(begin, end - begin) : "";
    if (name.empty() || !std::getenv(name.c_str())) {
      out += text[at++];
      continue;
    }
    out += variable(name);
    at = end + (braces ? 1 : 0);
  }
  return out;
}

bool is_true(std::string value) {
  constexpr std::array<std::string_view, 4> kTrue = {"1", "ON", "YES", "TRUE"};
  std::ranges::transform(value, value.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return std::ranges::find(kTrue, value) != kTrue.end();
}

std::string trimmed(std::string text) {
  std::erase_if(text, [](char c) { return c == '\r' || c == '\n'; });
  const std::size_t begin = text.find_first_not_of(" \t");
  return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

}  // namespace

HubEnvironment hub_environment() {
  const fs::path caches = first_of({"XDG_CACHE_HOME"}, (fs::path(variable("HOME")) / ".cache").string());
  const fs::path home = expanded(first_of({"HF_HOME"}, (caches / "huggingface").string()));
  HubEnvironment e;
  e.cache = expanded(first_of({"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}, (home / "hub").string()));
  e.token_file = expanded(first_of({"HF_TOKEN_PATH"}, (home / "token").string()));
  e.endpoint = first_of({"HF_ENDPOINT"}, "https://huggingface.co");
  while (e.endpoint.ends_with('/')) e.endpoint.pop_back();
  e.token = trimmed(first_of({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}, ""));
  e.offline = is_true(first_of({"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}, ""));
  e.implicit_token = !is_true(variable("HF_HUB_DISABLE_IMPLICIT_TOKEN"));
  return e;
}

std::string checked_token(const std::string& text, const std::string& place) {
  std::string token = trimmed(text);
  // Control characters could forge lines of a request.
  if (std::ranges::any_of(token, [](unsigned char c) { return c <= ' ' || c >= 0x7f; }))
    fail(ErrorKind::usage, {.cause = "the token of the hub has characters that no token has",
                            .place = place,
                            .remedy = "check it, or log in again: hf auth login"});
  return token;
}

std::string hub_token(const HubEnvironment& environment) {
  constexpr std::uint64_t kMaxBytes = 1 << 16;
  if (!environment.implicit_token) return {};
  std::error_code ignored;
  std::string token = environment.token;
  if (token.empty() && fs::is_regular_file(environment.token_file, ignored))
    token = trimmed(read_text(environment.token_file, kMaxBytes));
  return checked_token(token, environment.token.empty() ? environment.token_file.string() : "HF_TOKEN");
}

}  // namespace qtrain
