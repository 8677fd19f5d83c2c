#include "app/serve/api_error.h"

namespace qtrain::serve {
namespace {

const char* type_of(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    default: return status < 500 ? "invalid_request_error" : "server_error";
  }
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

}  // namespace

Json ApiError::json() const {
  return {{"error",
           {{"message", text_.message},
            {"type", type_of(status_)},
            {"param", text_or_null(text_.param)},
            {"code", text_or_null(text_.code)}}}};
}

}  // namespace qtrain::serve
