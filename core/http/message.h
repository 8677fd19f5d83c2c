#pragma once
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace qtrain::http {

struct Header {
  std::string name;  ///< in lower case if it was received
  std::string value;
};

/// A received request. `headers` do not include trailers.
struct Request {
  std::string method;
  std::string target;  ///< "/v1/models?x=1", as received
  int version = 11;    ///< 10 or 11
  std::vector<Header> headers;
  std::string body;
  std::string peer;               ///< the client's address
  std::function<bool()> is_gone;  ///< whether its client has closed the connection

  /// The value of the first header with that name, which is in lower case; empty if there is none.
  std::string_view header(std::string_view name) const;
  bool has(std::string_view name) const;
  /// The target without its query.
  std::string_view path() const;
};

/// Sends a piece of a body; returns false if the client accepts no more.
using Send = std::function<bool(std::string_view piece)>;

struct Reply {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body = {};
  std::vector<Header> headers = {};
  /// If set, this sends the body; it returns false if the body is incomplete.
  std::function<bool(const Send& send)> stream = {};
};

/// Thrown for a request that violates HTTP or a limit. The connection is closed after it.
class Problem : public std::runtime_error {
 public:
  Problem(int status, const std::string& message) : std::runtime_error(message), status_(status) {}
  int status() const { return status_; }

 private:
  int status_;
};

/// "Not Found" for 404.
std::string_view reason_of(int status);

bool equal_without_case(std::string_view a, std::string_view b);
std::string lower_case(std::string_view text);
/// Decodes each %XX. Throws Problem 400 for any other use of "%".
std::string percent_decoded(std::string_view text);

}  // namespace qtrain::http
