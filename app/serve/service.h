#pragma once
#include <functional>
#include <string>

#include "app/serve/answers_of_request.h"
#include "app/serve/api_error.h"
#include "app/serve/engine.h"
#include "app/serve/http_server.h"

namespace qtrain::serve {

/// What a server is asked to do, on top of its models.
struct ServiceOptions {
  std::string host = "127.0.0.1";
  std::string token = {};  ///< that clients must have; empty: anybody may ask
  RequestLimits requests;
};

/// OpenAI's API over an engine, and a page to try it.
class Service {
 public:
  /// All of them outlive the server.
  Service(Engine& engine, const ServedModels& models, ServiceOptions options, Log& log);
  void add_routes(HttpServer& server);

 private:
  using Handler = std::function<void(const httplib::Request&, httplib::Response&)>;
  enum class Access : std::uint8_t { open, with_token };
  Handler guarded(Access access, Handler handler) const;
  ApiError failed(const std::string& id, const std::exception& e) const;
  void require_own_page(const httplib::Request& request) const;
  void require_token(const httplib::Request& request) const;
  void list_models(httplib::Response& response) const;
  void tell_health(httplib::Response& response) const;
  void answer(const HttpServer& server, Endpoint endpoint, const httplib::Request& request,
              httplib::Response& response) const;
  void stream(AnswersOfRequest& answers, const std::string& model, httplib::Response& response) const;

  Engine& engine_;
  const ServedModels& models_;
  ServiceOptions options_;
  Log& log_;
  std::int64_t started_;
};

/// Whether the texts are the same, in a time that does not depend on where they differ.
bool same_secret(const std::string& a, const std::string& b);

}  // namespace qtrain::serve
