#pragma once
#include <memory>
#include <optional>
#include <string>

#include "app/serve/answers_of_request.h"
#include "app/serve/api_error.h"
#include "app/serve/engine.h"
#include "app/serve/turns.h"
#include "core/http/server.h"

namespace qtrain::serve {

/// Options of a server, in addition to its models.
struct ServiceOptions {
  std::string host = "127.0.0.1";
  std::string token = {};  ///< token that clients must send; empty: none is needed
  RequestLimits requests;
};

struct LoggedAnswers;

/// OpenAI's API over an engine, and a page to try it.
class Service final : public http::Handler {
 public:
  /// All arguments must outlive it.
  Service(Engine& engine, const ServedModels& models, ServiceOptions options, Log& log);

  /// Checks Host and Origin, the path, the token, the method and the encoding of the body, in this order.
  std::optional<http::Reply> refuse(const http::Request& head) const override;
  http::Reply answer(const http::Request& request) const override;
  http::Reply reply_to(const http::Problem& problem) const override;

 private:
  ApiError failed(const std::string& id, const std::exception& e) const;
  void require_own_page(const http::Request& head) const;
  void require_token(const http::Request& head) const;
  Json model_entry(const ServedModel& model) const;
  http::Reply list_models() const;
  http::Reply show_model(std::string_view name) const;
  http::Reply show_health() const;
  http::Reply answer_at(const http::Request& request, const std::string& id) const;
  ApiRequest read(Endpoint endpoint, const http::Request& request) const;
  http::Reply complete(Endpoint endpoint, const http::Request& request, const std::string& id) const;
  bool stream(LoggedAnswers& logged, const http::Request& request, const http::Send& send) const;

  Engine& engine_;
  const ServedModels& models_;
  ServiceOptions options_;
  Log& log_;
  std::int64_t started_;
  mutable Turns large_;  ///< of requests with large bodies
};

/// Compares two strings in a time that does not depend on where they differ.
bool same_secret(const std::string& a, const std::string& b);

}  // namespace qtrain::serve
