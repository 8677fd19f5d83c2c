#pragma once
#include <stdexcept>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/formats/json.h"

namespace qtrain::serve {

/// An error reply to a client, in the form of OpenAI's API.
class ApiError : public std::runtime_error {
 public:
  struct Text {
    std::string message;     ///< cause and remedy
    std::string param = {};  ///< the key of the body
    std::string code = {};   ///< "model_not_found"
  };
  ApiError(int status, Text text) : std::runtime_error(text.message), status_(status), text_(std::move(text)) {}

  int status() const { return status_; }
  /// {"error": {"message", "type", "param", "code"}}
  Json json() const;

 private:
  int status_;
  Text text_;
};

/// 400: something about the body.
[[noreturn]] inline void refuse(ApiError::Text text) {
  throw ApiError(400, std::move(text));
}
/// Whether the request caused it: an input or usage error. Anything else is a server error.
inline bool is_of_client(const Error& error) {
  return error.kind() == ErrorKind::input || error.kind() == ErrorKind::usage;
}

}  // namespace qtrain::serve
