#include "app/serve/service.h"

#include <fmt/format.h>

#include <chrono>
#include <map>
#include <memory>
#include <string_view>

#include "app/serve/api_error.h"
#include "app/serve/replies.h"
#include "config/keys.h"
#include "core/plural.h"
#include "core/sha256.h"
#include "core/version.h"

namespace qtrain {

const std::map<std::string_view, std::string_view>& serve_page();  // embedded by CMake

namespace serve {
namespace {

using httplib::Request;
using httplib::Response;
using std::chrono::milliseconds;

constexpr milliseconds kLook{100};  // how often a client is looked at while its answer grows
constexpr const char* kJsonType = "application/json";
constexpr const char* kRequestId = "X-Request-Id";

// Valid UTF-8 whatever the model has written.
std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void give_error(Response& response, const ApiError& error) {
  response.status = error.status();
  if (error.status() == 401) response.set_header("WWW-Authenticate", "Bearer");
  if (error.status() == 429 || error.status() == 503) response.set_header("Retry-After", "1");
  response.set_content(text_of(error.json()), kJsonType);
}

// Of errors that cpp-httplib finds.
ApiError error_of_status(const Request& request, int status) {
  switch (status) {
    case 404:
      return {404,
              {.message = fmt::format("there is nothing at {} {}: the API is at /v1/models, /v1/chat/completions and "
                                      "/v1/completions",
                                      request.method, request.path)}};
    case 413: return {413, {.message = "the body is too large"}};
    case 414: return {414, {.message = "the address is too long"}};
    default: return {status, {.message = "the request cannot be read"}};
  }
}

std::string host_of(const std::string& authority) {
  if (authority.starts_with("[")) return authority.substr(1, authority.find(']') - 1);
  return authority.substr(0, authority.find(':'));
}

void add_page(HttpServer& server, const char* path, const char* name, const char* type) {
  server.Get(path, [name, type](const Request&, Response& response) {
    const std::string_view text = serve_page().at(name);
    response.set_content(text.data(), text.size(), type);
  });
}

/// The answers to a request, of which the log has a line in the end.
struct LoggedAnswers {
  Log& log;
  std::string id, model;
  AnswersOfRequest answers;
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();

  LoggedAnswers(Log& to, std::string request_id, Engine& engine, const ServedModels& models, ApiRequest request)
      : log(to),
        id(std::move(request_id)),
        model(models[request.model].name),
        answers(engine, models, std::move(request)) {}
  ~LoggedAnswers() {
    const std::int64_t tokens = answers.answer_tokens();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    log.info("{} {}: {} of prompt, {} in {:.2f} s ({:.1f}/s){}", id, model, counted(answers.prompt_tokens(), "token"),
             counted(tokens, "token"), seconds, static_cast<double>(tokens) / std::max(seconds, 1e-9),
             answers.finished() ? "" : ", not finished");
  }
};

}  // namespace

bool same_secret(const std::string& a, const std::string& b) {
  const std::string x = sha256_of(a), y = sha256_of(b);
  unsigned differ = 0;
  for (std::size_t i = 0; i < x.size(); ++i) differ |= static_cast<unsigned>(x[i] ^ y[i]);
  return differ == 0;
}

Service::Service(Engine& engine, const ServedModels& models, ServiceOptions options, Log& log)
    : engine_(engine),
      models_(models),
      options_(std::move(options)),
      log_(log),
      started_(std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
                   .count()) {}

// Without a token whatever runs in a browser on this machine could ask: pages of other origins are refused, and names
// that lead here without being this machine's.
void Service::require_own_page(const Request& request) const {
  if (!options_.token.empty()) return;
  const std::string authority = request.get_header_value("Host"), origin = request.get_header_value("Origin");
  const std::string host = host_of(authority);
  if (!authority.empty() && !is_loopback(host) && host != options_.host)
    throw ApiError(403, {.message = fmt::format("this server is not called {}: ask for {}, or start it with --token",
                                                show(Json(host)), options_.host)});
  if (!origin.empty() && origin != "http://" + authority)
    throw ApiError(403, {.message = "pages of other origins may not ask: start the server with --token"});
}

void Service::require_token(const Request& request) const {
  if (options_.token.empty()) return;
  constexpr std::string_view kBearer = "Bearer ";
  const std::string given = request.get_header_value("Authorization");
  if (!given.starts_with(kBearer) || !same_secret(given.substr(kBearer.size()), options_.token))
    throw ApiError(401, {.message = "the token of the server is missing or wrong: send it as the header "
                                    "\"Authorization: Bearer TOKEN\", which clients call the API key",
                         .code = "invalid_api_key"});
}

Service::Handler Service::guarded(Access access, Handler handler) const {
  return [this, access, handler](const Request& request, Response& response) {
    try {
      require_own_page(request);
      if (access == Access::with_token) require_token(request);
      if (request.has_header(kUnreadEncoding))
        throw ApiError(415, {.message = "compressed bodies are not read: send it as it is"});
      handler(request, response);
    } catch (const ApiError& e) {
      give_error(response, e);
    } catch (const Error& e) {
      if (!is_of_client(e)) throw;
      give_error(response, ApiError(400, {.message = e.what()}));
    }
  };
}

// The log says why; what the client is told is where to look.
ApiError Service::failed(const std::string& id, const std::exception& e) const {
  log_.error("request {} failed: {}", id, e.what());
  return {500, {.message = fmt::format("request {} failed within the server: its log says why", id)}};
}

void Service::list_models(Response& response) const {
  Json data = Json::array();
  for (const ServedModel& m : models_.all()) {
    Json entry{{"id", m.name}, {"object", "model"}, {"created", started_}, {"owned_by", "qtrain"}};
    if (&m != &models_.all().front()) entry["parent"] = models_[0].name;
    data.push_back(std::move(entry));
  }
  response.set_content(text_of({{"object", "list"}, {"data", std::move(data)}}), kJsonType);
}

void Service::tell_health(Response& response) const {
  if (engine_.closed()) throw ApiError(503, {.message = "the server is stopping"});
  response.set_content(text_of({{"status", "ok"},
                                {"version", kVersion},
                                {"active", engine_.active()},
                                {"outstanding", engine_.outstanding()}}),
                       kJsonType);
}

void Service::stream(AnswersOfRequest& answers, const std::string& model, Response& response) const {
  struct State {
    AnswersOfRequest& answers;
    Replies replies;
    std::string id;
    bool begun = false;
  };
  const auto state =
      std::make_shared<State>(State{answers, Replies(answers.request(), model), response.get_header_value(kRequestId)});
  response.set_header("Cache-Control", "no-cache");
  response.set_chunked_content_provider("text/event-stream", [this, state](std::size_t, httplib::DataSink& sink) {
    const auto send = [&](const Json& json) {
      const std::string text = "data: " + text_of(json) + "\n\n";
      return sink.write(text.data(), text.size());
    };
    if (!std::exchange(state->begun, true))
      for (const Json& chunk : state->replies.first_chunks()) send(chunk);
    try {
      if (const auto event = state->answers.next(kLook))
        for (const Json& chunk : state->replies.chunks(*event)) send(chunk);
    } catch (const ApiError& e) {
      send(e.json());
      sink.done();
      return true;
    } catch (const std::exception& e) {
      send(failed(state->id, e).json());
      sink.done();
      return true;
    }
    if (!sink.is_writable()) return false;
    if (!state->answers.finished()) return true;
    if (state->answers.request().include_usage) send(state->replies.usage_chunk(state->answers));
    constexpr std::string_view kDone = "data: [DONE]\n\n";
    sink.write(kDone.data(), kDone.size());
    sink.done();
    return true;
  });
}

void Service::answer(const HttpServer& server, Endpoint endpoint, const Request& request, Response& response) const {
  ApiRequest read = read_request(endpoint, request.body, models_, options_.requests);
  const std::string model = models_[read.model].name;
  const auto logged =
      std::make_shared<LoggedAnswers>(log_, response.get_header_value(kRequestId), engine_, models_, std::move(read));
  AnswersOfRequest* answers = &logged->answers;
  if (answers->request().stream) {
    stream(*answers, model, response);
    response.content_provider_resource_releaser_ = [logged](bool) {};
    return;
  }
  Replies replies(answers->request(), model);
  for (auto looked = logged->begin; !answers->finished();) {
    if (const auto event = answers->next(kLook)) replies.collect(*event);
    if (std::chrono::steady_clock::now() - looked < kLook) continue;
    looked = std::chrono::steady_clock::now();
    if (server.is_gone(request)) throw ApiError(499, {.message = "the client has gone"});
  }
  response.set_content(text_of(replies.document(*answers)), kJsonType);
}

void Service::add_routes(HttpServer& server) {
  server.set_default_headers({{"X-Content-Type-Options", "nosniff"},
                              {"Referrer-Policy", "no-referrer"},
                              {"Content-Security-Policy",
                               "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
                               "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"}});
  server.set_pre_routing_handler([](const Request&, Response& response) {
    response.set_header(kRequestId, "req-" + random_name());
    return httplib::Server::HandlerResponse::Unhandled;
  });
  add_page(server, "/", "index", "text/html; charset=utf-8");
  add_page(server, "/page\\.js", "page", "text/javascript; charset=utf-8");
  add_page(server, "/style\\.css", "style", "text/css; charset=utf-8");
  server.Get("/health", guarded(Access::open, [this](const Request&, Response& r) { tell_health(r); }));
  server.Get("/v1/models", guarded(Access::with_token, [this](const Request&, Response& r) { list_models(r); }));
  for (const auto& [path, endpoint] :
       {std::pair("/v1/chat/completions", Endpoint::chat), std::pair("/v1/completions", Endpoint::completions)})
    server.Post(path, guarded(Access::with_token, [this, &server, endpoint = endpoint](const Request& q, Response& r) {
                  answer(server, endpoint, q, r);
                }));
  server.set_error_handler([](const Request& request, Response& response) {
    if (response.body.empty()) give_error(response, error_of_status(request, response.status));
  });
  server.set_exception_handler([this](const Request&, Response& response, std::exception_ptr thrown) {
    try {
      std::rethrow_exception(thrown);
    } catch (const std::exception& e) {
      give_error(response, failed(response.get_header_value(kRequestId), e));
    }
  });
}

}  // namespace serve
}  // namespace qtrain
