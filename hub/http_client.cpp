#include "hub/http_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "core/os/stop.h"
#include "core/secrets.h"
#include "core/utf8.h"
#include "core/version.h"
#include "hub/curl_library.h"

namespace qtrain {
namespace {

constexpr long kConnectSeconds = 10;  // NOLINT(google-runtime-int): as in curl.h
// A list of the most files that are allowed takes 50 MB. An error has a sentence for people.
constexpr std::size_t kMaxBody = std::size_t{1} << 26, kMaxErrorBody = 1 << 16, kMaxHead = 1 << 18;
constexpr int kMaxRedirects = 8;
constexpr std::chrono::seconds kPatience{2};

std::string in_lower_case(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

std::string without_blanks(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == text.npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1));
}

std::string given_file(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* value = std::getenv(name); value && *value) return value;
  return {};
}

/// Redacts what comes before an "@" in a word: libcurl repeats the address of a proxy if it cannot be read.
std::string without_users(std::string_view text) {
  constexpr std::string_view kBorders = " \t\r\n'\"/";
  std::string out;
  for (std::size_t at = text.find('@'); at != text.npos; at = text.find('@')) {
    const std::size_t border = text.find_last_of(kBorders, at), begin = border == text.npos ? 0 : border + 1;
    out.append(text.substr(0, begin)).append(kRedacted).append("@");
    text.remove_prefix(at + 1);
  }
  return out.append(text);
}

/// The user's netrc file; empty if there is none, or something that libcurl would wait for, such as a FIFO.
std::string netrc_file() {
  std::string file = given_file({"NETRC"});
  if (const char* home = std::getenv("HOME"); file.empty() && home) file = std::string(home) + "/.netrc";
  std::error_code ignored;
  return std::filesystem::is_regular_file(file, ignored) ? file : "";
}

bool is_redirect(int status) {
  constexpr std::array<int, 5> kRedirects{301, 302, 303, 307, 308};
  return std::ranges::find(kRedirects, status) != kRedirects.end();
}

/// Whether a redirect asks for the same request at another address, not for a GET.
bool keeps_method(int status) {
  return status == 307 || status == 308;
}

}  // namespace

/// One request and what has come of its answer.
struct HttpClient::OneRequest {
  const HttpQuery& query;
  HttpReply reply = {};
  std::size_t head_bytes = 0;
  std::uint64_t sent = 0;
  bool has_body = false, is_enough = false, is_too_large = false;
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  bool told_of_wait = false;

  static std::size_t on_header(char* bytes, std::size_t size, std::size_t count, void* data) {
    return static_cast<OneRequest*>(data)->add_header({bytes, size * count}) ? size * count : 0;
  }
  static std::size_t on_body(char* bytes, std::size_t size, std::size_t count, void* data) {
    return static_cast<OneRequest*>(data)->add_body({bytes, size * count}) ? size * count : 0;
  }
  static std::size_t on_read(char* bytes, std::size_t size, std::size_t count, void* data) {
    return static_cast<OneRequest*>(data)->take_body(std::as_writable_bytes(std::span(bytes, size * count)));
  }
  static int on_seek(void* data, std::int64_t offset, int origin) {
    if (origin != SEEK_SET || offset < 0) return curl::kSeekFailed;
    static_cast<OneRequest*>(data)->sent = static_cast<std::uint64_t>(offset);
    return curl::kSeekDone;
  }
  static int on_progress(void* data, std::int64_t, std::int64_t, std::int64_t, std::int64_t) {
    static_cast<OneRequest*>(data)->tell_of_wait();
    return stop_requested() ? 1 : 0;
  }

  void tell_of_wait() {
    if (told_of_wait || head_bytes > 0 || !query.on_wait || std::chrono::steady_clock::now() - begin < kPatience)
      return;
    told_of_wait = true;
    query.on_wait();
  }

  std::size_t take_body(std::span<std::byte> room) {
    const std::uint64_t left = query.body.size - std::min(sent, query.body.size);
    if (left == 0) return 0;
    room = room.first(static_cast<std::size_t>(std::min<std::uint64_t>(left, room.size())));
    const std::size_t n = stop_requested() ? 0 : query.body.read(sent, room);
    if (n == 0) return curl::kAbortRead;
    sent += n;
    return n;
  }

  bool add_header(std::string_view line) {
    head_bytes += line.size();
    is_too_large = head_bytes > kMaxHead;
    if (has_body || is_too_large) return !is_too_large;  // trailers change nothing
    if (line.starts_with("HTTP/")) {                     // the answer itself, after that of a proxy
      const std::size_t space = line.find(' ');
      reply.headers.clear();
      reply.status = space == line.npos ? 0 : std::atoi(std::string(line.substr(space + 1)).c_str());
    } else if (const std::size_t colon = line.find(':'); colon != line.npos) {
      reply.headers[in_lower_case(line.substr(0, colon))] = without_blanks(line.substr(colon + 1));
    }
    return true;
  }

  bool add_body(std::string_view bytes) {
    has_body = true;
    const bool is_good = reply.status == 200 || reply.status == 206;
    if (query.take && is_good) {
      is_enough = !query.take(reply, std::as_bytes(std::span(bytes.data(), bytes.size())));
      return !is_enough;
    }
    const std::size_t room = (is_good ? kMaxBody : kMaxErrorBody) - reply.body.size();
    (is_good ? is_too_large : is_enough) = bytes.size() > room;
    reply.body.append(bytes.substr(0, room));
    return !is_too_large && !is_enough;
  }
};

HttpClient::HttpClient() : easy_(curl_library().easy_init()) {
  check(easy_ != nullptr, "libcurl failed to allocate memory");
}

HttpClient::~HttpClient() {
  curl_library().easy_cleanup(easy_);
}

HttpReply HttpClient::send(const HttpQuery& query) {
  HttpQuery next = query;
  const std::string first = origin_of_url(query.url);
  const bool has_body = query.method != HttpMethod::get;
  for (int hops = 0; hops <= kMaxRedirects; ++hops) {
    HttpReply reply = send_once(next);
    if (!is_redirect(reply.status)) return reply;
    const std::string url = redirected_url(next.url, reply.header("location")), origin = origin_of_url(url);
    if (origin.empty() || (first.starts_with("https:") && !origin.starts_with("https:")) ||
        (has_body && (!keeps_method(reply.status) || origin != first)))
      return {.status = 0,
              .problem = fmt::format("{} redirects to an address that is not safe: {}", reply.host,
                                     shown_text(url, query.token))};
    next.url = url;
    // Other hosts get URLs that are signed; a token would let them act for the user.
    next.token = origin == first ? query.token : "";
    next.use_netrc = query.use_netrc && origin == first;
  }
  return {.status = 0, .problem = "too many redirects"};
}

HttpReply HttpClient::send_once(const HttpQuery& query) {
  const CurlLibrary& lib = curl_library();
  lib.easy_reset(easy_);
  OneRequest request{.query = query};
  request.reply.host = origin_of_url(query.url);
  if (request.reply.host.empty()) return {.status = 0, .problem = "the address is not one of http or https"};
  std::array<char, curl::kErrorSize> problem{};
  const std::string agent = fmt::format("qtrain/{}", kVersion);
  const auto set = [&](int option, auto value) { lib.easy_setopt(easy_, option, value); };
  set(curl::kUrl, query.url.c_str());
  set(curl::kProtocols, curl::kHttpAndHttps);
  set(curl::kFollowLocation, 0L);
  set(curl::kNoSignal, 1L);
  set(curl::kConnectTimeout, kConnectSeconds);
  set(curl::kLowSpeedLimit, 1L);
  set(curl::kLowSpeedTime, static_cast<long>(query.max_silence.count()));  // NOLINT(google-runtime-int): as in curl.h
  set(curl::kUserAgent, agent.c_str());
  set(curl::kErrorBuffer, problem.data());
  set_callbacks(request);
  set_method(query);
  set_credentials(query);
  curl::Header* headers = headers_of(query);
  set(curl::kHttpHeader, headers);
  const int code = lib.easy_perform(easy_);
  lib.slist_free_all(headers);
  HttpReply reply = std::move(request.reply);
  if (code == 0 || request.is_enough) return reply;
  throw_if_stopped();
  double until_sent = 0;
  reply.is_unreachable = lib.easy_getinfo(easy_, curl::kPretransferTime, &until_sent) == 0 && until_sent <= 0;
  reply.problem = shown_text(without_users(problem[0] != 0 ? problem.data() : lib.easy_strerror(code)), query.token);
  if (request.is_too_large) reply.problem = "the answer is too large";
  reply.status = 0;
  reply.body.clear();
  return reply;
}

void HttpClient::set_callbacks(OneRequest& request) {
  const CurlLibrary& lib = curl_library();
  const auto set = [&](int option, auto value) { lib.easy_setopt(easy_, option, value); };
  set(curl::kHeaderFunction, static_cast<curl::Write>(OneRequest::on_header));
  set(curl::kHeaderData, static_cast<void*>(&request));
  set(curl::kWriteFunction, static_cast<curl::Write>(OneRequest::on_body));
  set(curl::kWriteData, static_cast<void*>(&request));
  set(curl::kReadFunction, static_cast<curl::Read>(OneRequest::on_read));
  set(curl::kReadData, static_cast<void*>(&request));
  set(curl::kSeekFunction, static_cast<curl::Seek>(OneRequest::on_seek));
  set(curl::kSeekData, static_cast<void*>(&request));
  set(curl::kNoProgress, 0L);
  set(curl::kProgressFunction, static_cast<curl::Watch>(OneRequest::on_progress));
  set(curl::kProgressData, static_cast<void*>(&request));
}

void HttpClient::set_method(const HttpQuery& query) {
  const CurlLibrary& lib = curl_library();
  const auto set = [&](int option, auto value) { lib.easy_setopt(easy_, option, value); };
  const auto size = static_cast<std::int64_t>(query.body.size);
  switch (query.method) {
    case HttpMethod::get: set(curl::kHttpGet, 1L); break;
    case HttpMethod::post:
      set(curl::kPost, 1L);
      set(curl::kPostSize, size);
      break;
    case HttpMethod::put:
      set(curl::kUpload, 1L);
      set(curl::kUploadSize, size);
      break;
  }
  // libcurl copies it.
  if (query.begin > 0) set(curl::kRange, fmt::format("{}-", query.begin).c_str());
}

void HttpClient::set_credentials(const HttpQuery& query) {
  const CurlLibrary& lib = curl_library();
  const auto set = [&](int option, auto value) { lib.easy_setopt(easy_, option, value); };
  const std::string netrc = netrc_file(),
                    certificates = given_file({"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"});
  if (!certificates.empty()) set(curl::kCaInfo, certificates.c_str());
  if (query.token.empty() && query.use_netrc && !netrc.empty()) {
    set(curl::kNetrc, curl::kNetrcOptional);
    set(curl::kNetrcFile, netrc.c_str());
  }
}

curl::Header* HttpClient::headers_of(const HttpQuery& query) {
  const CurlLibrary& lib = curl_library();
  curl::Header* headers = lib.slist_append(nullptr, "Accept-Encoding: identity");
  if (!query.token.empty()) headers = lib.slist_append(headers, ("Authorization: Bearer " + query.token).c_str());
  if (query.method == HttpMethod::get) return headers;
  headers = lib.slist_append(headers, "Expect:");  // else a server that ignores it costs a second
  // An empty one, because signed addresses may not be used with the one that libcurl sends by itself.
  headers = lib.slist_append(headers,
                             query.body.type.empty() ? "Content-Type:" : ("Content-Type: " + query.body.type).c_str());
  return headers;
}

HttpBody text_body(std::string_view text, std::string type) {
  return {
      .size = text.size(), .type = std::move(type), .read = [text](std::uint64_t offset, std::span<std::byte> room) {
        const std::string_view rest = text.substr(static_cast<std::size_t>(offset), room.size());
        std::memcpy(room.data(), rest.data(), rest.size());
        return rest.size();
      }};
}

std::string origin_of_url(std::string_view url) {
  const std::size_t mark = url.find("://");
  if (mark == url.npos || url.find('\\') != url.npos) return {};  // some parsers take \ for /
  const std::string scheme = in_lower_case(url.substr(0, mark));
  const std::string_view rest = url.substr(mark + 3);
  std::string authority = in_lower_case(rest.substr(0, rest.find_first_of("/?#")));
  const auto refused = [](unsigned char c) { return c <= ' ' || c >= 0x7f || c == '@'; };
  if ((scheme != "http" && scheme != "https") || authority.empty() || std::ranges::any_of(authority, refused))
    return {};
  const std::string_view usual = scheme == "http" ? ":80" : ":443";
  if (authority.ends_with(usual)) authority.erase(authority.size() - usual.size());
  return scheme + "://" + authority;
}

std::string redirected_url(const std::string& url, const std::string& location) {
  if (const std::size_t mark = location.find("://"); mark != location.npos && mark < location.find_first_of("/?#"))
    return location;
  const std::size_t host = url.find("://"), path = host == url.npos ? url.npos : url.find_first_of("/?#", host + 3);
  if (location.starts_with("//")) return url.substr(0, url.find(':') + 1) + location;
  if (location.starts_with('/')) return url.substr(0, path) + location;
  return {};
}

std::string shown_text(std::string_view text, std::string_view token) {
  constexpr std::size_t kMaxShown = 300, kShortestToken = 8;
  std::string shown = without_credentials(text);
  const bool is_secret = token.size() >= kShortestToken;
  for (std::size_t at = 0; is_secret && (at = shown.find(token, at)) != shown.npos; at += kRedacted.size())
    shown.replace(at, token.size(), kRedacted);
  if (shown.size() <= kMaxShown) return one_line(shown);
  std::size_t end = kMaxShown;
  while (end > 0 && (static_cast<unsigned char>(shown[end]) & 0xC0) == 0x80) --end;
  return one_line(shown.substr(0, end)) + "...";
}

std::string escaped_path(std::string_view path) {
  std::string out;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || std::string_view("-._~/").find(c) != std::string_view::npos)
      out += c;
    else
      out += fmt::format("%{:02X}", byte);
  }
  return out;
}

}  // namespace qtrain
