#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace qtrain {

namespace curl {
struct Easy;
struct Header;
}  // namespace curl

/// What a server said; `status` is 0 if it did not say everything.
struct HttpReply {
  int status = 0;
  std::string problem = {};                         ///< why the transfer ended early: "Connection refused"
  std::map<std::string, std::string> headers = {};  ///< of the last answer, with names in lower case
  std::string body = {};                            ///< unless it was handed to `take`; of an error, only its beginning
  std::string host = {};                            ///< scheme, host and port that sent it
  bool is_unreachable = false;                      ///< no connection could be made

  bool is_success() const { return status >= 200 && status < 300; }
  std::string header(const std::string& name) const {
    const auto it = headers.find(name);
    return it == headers.end() ? std::string() : it->second;
  }
};

enum class HttpMethod : std::uint8_t { get, post, put };

/// What a request sends.
struct HttpBody {
  std::uint64_t size = 0;
  std::string type = {};  ///< Content-Type
  /// Copies bytes from `offset` on; returns how many, or 0 to end the transfer. May be called again for the same ones.
  std::function<std::size_t(std::uint64_t offset, std::span<std::byte>)> read = {};
};
/// A body that is in memory, and stays there until the request has been answered.
HttpBody text_body(std::string_view text, std::string type);

struct HttpQuery {
  std::string url;
  HttpMethod method = HttpMethod::get;
  HttpBody body = {};                    ///< of a POST or PUT
  std::string token = {};                ///< sent to the host of `url`, and to no other one
  bool use_netrc = true;                 ///< if there is no token
  std::uint64_t begin = 0;               ///< asks for the bytes from here on
  std::chrono::seconds max_silence{30};  ///< without a byte in either direction
  std::function<void()> on_wait = {};    ///< called once if nothing has come for two seconds
  /// Receives the body of a successful answer in pieces; returns false to end the transfer. Without it, the body is
  /// kept in the reply.
  std::function<bool(const HttpReply& head, std::span<const std::byte>)> take = {};
};

/// Sends requests over connections that are kept open. Follows redirects, but not from https to http, and with a body
/// only those that keep the method, on the same host. Uses the proxies
/// that http_proxy, https_proxy and no_proxy name, and the certificates of the system or those that SSL_CERT_FILE,
/// REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE name. Without a token, the user's netrc file is used. A stop request ends a
/// transfer. Not for several threads at once.
class HttpClient {
 public:
  /// Throws as curl_library does.
  HttpClient();
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  HttpReply send(const HttpQuery& query);

 private:
  struct OneRequest;
  HttpReply send_once(const HttpQuery& query);
  void set_callbacks(OneRequest& request);
  void set_method(const HttpQuery& query);
  void set_credentials(const HttpQuery& query);
  static curl::Header* headers_of(const HttpQuery& query);

  curl::Easy* easy_;
};

/// "https://host:port" of a URL, in lower case and with the port left out if it is the usual one; empty if it is not
/// http or https, or has a user.
std::string origin_of_url(std::string_view url);
/// The URL that `location` means in an answer to a request for `url`.
std::string redirected_url(const std::string& url, const std::string& location);
/// What a server says, for a message: in one line, of limited length, and without credentials and the token.
std::string shown_text(std::string_view text, std::string_view token);
/// Escapes what cannot be in a path of a URL; slashes stay.
std::string escaped_path(std::string_view path);

}  // namespace qtrain
