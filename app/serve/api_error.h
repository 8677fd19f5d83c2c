#pragma once
#include <stdexcept>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/formats/json.h"

namespace qtrain::serve {

/// What a client is told where a request is not answered, as OpenAI's API does.
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
/// Whether a request led to it: an error of input or usage. Anything else is ours.
inline bool is_of_client(const Error& error) {
  return error.kind() == ErrorKind::input || error.kind() == ErrorKind::usage;
}

}  // namespace qtrain::serve
