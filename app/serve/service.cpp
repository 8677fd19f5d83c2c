#include "app/serve/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <new>
#include <string_view>

#include "app/serve/api_error.h"
#include "app/serve/replies.h"
#include "config/keys.h"
#include "core/http/authority.h"
#include "core/plural.h"
#include "core/sha256.h"
#include "core/utf8.h"
#include "core/version.h"

namespace qtrain {

const std::map<std::string_view, std::string_view>& serve_page();  // embedded by CMake

namespace serve {
namespace {

using http::Reply;
using http::Request;
using std::chrono::milliseconds;

constexpr milliseconds kClientCheck{100};  // how often to check that the client is still connected
// Larger bodies are read a few at a time: one of 8 MiB can take a second, and 50 times its size in memory.
constexpr std::size_t kLargeBody = std::size_t{256} << 10;
constexpr int kLargeAtATime = 2;
constexpr const char* kJsonType = "application/json";

// Replaces what is not valid UTF-8, which a model may write.
std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Reply reply_of(const Json& json) {
  return {.type = kJsonType, .body = text_of(json)};
}

Reply reply_of(const ApiError& error) {
  Reply reply = reply_of(error.json());
  reply.status = error.status();
  if (error.status() == 401) reply.headers.push_back({"WWW-Authenticate", "Bearer"});
  if (error.status() == 429 || error.status() == 503) reply.headers.push_back({"Retry-After", "1"});
  return reply;
}

// Adds the headers that all replies have.
Reply labelled(Reply reply, const std::string& id) {
  const std::initializer_list<http::Header> all{
      {"X-Request-Id", id},
      {"X-Content-Type-Options", "nosniff"},
      {"Referrer-Policy", "no-referrer"},
      {"Content-Security-Policy",
       "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
       "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"}};
  reply.headers.insert(reply.headers.end(), all.begin(), all.end());
  return reply;
}

std::string new_id() {
  return "req-" + random_name();
}

enum class Resource : std::uint8_t { page, health, models, model, chat, completions };
struct Route {
  std::string_view path;  ///< /v1/models/ is followed by a name
  Resource resource;
  bool takes_post = false, needs_token = true;
  const char* file = "";  ///< name of an embedded file of the page
  const char* type = "";
};
constexpr Route kRoutes[] = {
    {"/", Resource::page, false, false, "index", "text/html; charset=utf-8"},
    {"/page.js", Resource::page, false, false, "page", "text/javascript; charset=utf-8"},
    {"/style.css", Resource::page, false, false, "style", "text/css; charset=utf-8"},
    {"/health", Resource::health, false, false},
    {"/v1/models", Resource::models},
    {"/v1/models/", Resource::model},
    {"/v1/chat/completions", Resource::chat, true},
    {"/v1/completions", Resource::completions, true},
};

const Route* find_route(std::string_view path) {
  for (const Route& route : kRoutes) {
    const bool has_name = route.resource == Resource::model;
    if (has_name ? path.size() > route.path.size() && path.starts_with(route.path) : path == route.path) return &route;
  }
  return nullptr;
}

const Route& route_of(const Request& request) {
  if (const Route* route = find_route(request.path())) return *route;
  throw ApiError(404, {.message = fmt::format("there is nothing at {} {}: the API is at /v1/models, "
                                              "/v1/chat/completions and /v1/completions",
                                              request.method, request.path())});
}

bool takes(const Route& route, const std::string& method) {
  return route.takes_post ? method == "POST" : method == "GET" || method == "HEAD";
}

Reply refuse_method(const Route& route, const Request& request) {
  const char* allowed = route.takes_post ? "POST" : "GET, HEAD";
  Reply reply = reply_of(
      ApiError(405, {.message = fmt::format("{} accepts {}, not {}", request.path(), allowed, request.method)}));
  reply.headers.push_back({"Allow", allowed});
  return reply;
}

}  // namespace

/// The answers to a request. The destructor logs a line about them, if there is memory for it.
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
    try {
      say();
    } catch (const std::bad_alloc&) {
    }
  }
  LoggedAnswers(const LoggedAnswers&) = delete;
  LoggedAnswers& operator=(const LoggedAnswers&) = delete;

 private:
  void say() const {
    const std::int64_t tokens = answers.answer_tokens();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    log.info("{} {}: {} in the prompt, {} generated in {:.2f} s ({:.1f} tokens/s){}", id, one_line(model),
             counted(answers.prompt_tokens(), "token"), counted(tokens, "token"), seconds,
             static_cast<double>(tokens) / std::max(seconds, 1e-9), answers.finished() ? "" : ", not finished");
  }
};

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
                   .count()),
      large_(kLargeAtATime) {}

// Without a token, any web page open in a browser on this machine could send requests.
void Service::require_own_page(const Request& head) const {
  if (!options_.token.empty()) return;
  try {
    http::require_own_origin(head, options_.host);
  } catch (const http::Problem& e) {
    throw ApiError(e.status(), {.message = std::string(e.what()) + "; with --token the server answers them too"});
  }
}

void Service::require_token(const Request& head) const {
  if (options_.token.empty()) return;
  constexpr std::string_view kBearer = "bearer ";
  const std::string_view given = head.header("authorization");
  const bool is_bearer = http::equal_without_case(given.substr(0, kBearer.size()), kBearer);
  const std::string_view token =
      is_bearer ? given.substr(std::min(given.find_first_not_of(' ', kBearer.size()), given.size())) : "";
  if (!is_bearer || !same_secret(std::string(token), options_.token))
    throw ApiError(401, {.message = "the token of the server is missing or wrong: send it as the header "
                                    "\"Authorization: Bearer TOKEN\", which clients call the API key",
                         .code = "invalid_api_key"});
}

std::optional<Reply> Service::refuse(const Request& head) const {
  const auto refusal = [&]() -> std::optional<Reply> {
    try {
      require_own_page(head);
      const Route& route = route_of(head);
      if (route.needs_token) require_token(head);
      if (!takes(route, head.method)) return refuse_method(route, head);
      if (head.has("content-encoding") && !http::equal_without_case(head.header("content-encoding"), "identity"))
        throw ApiError(415, {.message = "compressed bodies are not supported: send the body uncompressed"});
      return {};
    } catch (const ApiError& e) {
      return reply_of(e);
    }
  }();
  if (!refusal) return {};
  return labelled(*refusal, new_id());
}

Reply Service::reply_to(const http::Problem& problem) const {
  return labelled(reply_of(ApiError(problem.status(), {.message = problem.what()})), new_id());
}

// Logs the cause, and refers the client to the log.
ApiError Service::failed(const std::string& id, const std::exception& e) const {
  log_.error("request {} failed: {}", id, e.what());
  return {500, {.message = fmt::format("request {} failed in the server: see its log", id)}};
}

Json Service::model_entry(const ServedModel& model) const {
  Json entry{{"id", model.name}, {"object", "model"}, {"created", started_}, {"owned_by", "qtrain"}};
  if (&model != &models_.all().front()) entry["parent"] = models_[0].name;
  return entry;
}

Reply Service::list_models() const {
  Json data = Json::array();
  for (const ServedModel& m : models_.all()) data.push_back(model_entry(m));
  return reply_of({{"object", "list"}, {"data", std::move(data)}});
}

Reply Service::show_model(std::string_view name) const {
  const auto model = models_.find(http::percent_decoded(name));
  if (!model)
    throw ApiError(
        404, {.message = fmt::format("there is no such model: the models are {}", fmt::join(models_.names(), ", ")),
              .param = "model",
              .code = "model_not_found"});
  return reply_of(model_entry(models_[*model]));
}

Reply Service::show_health() const {
  if (engine_.closed()) throw ApiError(503, {.message = "the server is stopping"});
  return reply_of(
      {{"status", "ok"}, {"version", kVersion}, {"active", engine_.active()}, {"outstanding", engine_.outstanding()}});
}

// Returns false if the client disconnected before the end.
bool Service::stream(LoggedAnswers& logged, const Request& request, const http::Send& send) const {
  AnswersOfRequest& answers = logged.answers;
  Replies replies(answers.request(), logged.model);
  bool connected = true;
  const auto give = [&](const Json& json) { connected = connected && send("data: " + text_of(json) + "\n\n"); };
  for (const Json& chunk : replies.first_chunks()) give(chunk);
  try {
    while (!answers.finished()) {
      if (const auto event = answers.next(kClientCheck))
        for (const Json& chunk : replies.chunks(*event)) give(chunk);
      if (!connected || request.is_gone()) return false;
    }
  } catch (const ApiError& e) {
    give(e.json());
    return true;
  } catch (const std::exception& e) {
    give(failed(logged.id, e).json());
    return true;
  }
  if (answers.request().include_usage) give(replies.usage_chunk(answers));
  return connected && send("data: [DONE]\n\n");
}

ApiRequest Service::read(Endpoint endpoint, const Request& request) const {
  const auto require_open = [&] {
    if (engine_.closed()) throw ApiError(503, {.message = "the server is stopping"});
  };
  const auto check = [&] {
    require_open();
    if (request.is_gone()) throw ApiError(499, {.message = "the client did not wait"});
  };
  const auto read_now = [&] {
    require_open();
    ApiRequest read = read_request(endpoint, request.body, models_, options_.requests);
    read.client = request.peer;
    return read;
  };
  if (request.body.size() <= kLargeBody) return read_now();
  const Turns::Turn turn = large_.wait(check, kClientCheck);
  return read_now();
}

Reply Service::complete(Endpoint endpoint, const Request& request, const std::string& id) const {
  const auto logged = std::make_shared<LoggedAnswers>(log_, id, engine_, models_, read(endpoint, request));
  AnswersOfRequest& answers = logged->answers;
  if (answers.request().stream)
    return {.type = "text/event-stream",
            .headers = {{"Cache-Control", "no-cache"}},
            .stream = [this, logged, &request](const http::Send& send) { return stream(*logged, request, send); }};
  Replies replies(answers.request(), logged->model);
  for (auto checked = logged->begin; !answers.finished();) {
    if (const auto event = answers.next(kClientCheck)) replies.collect(*event);
    if (std::chrono::steady_clock::now() - checked < kClientCheck) continue;
    checked = std::chrono::steady_clock::now();
    if (request.is_gone()) throw ApiError(499, {.message = "the client disconnected"});
  }
  return reply_of(replies.document(answers));
}

Reply Service::answer_at(const Request& request, const std::string& id) const {
  const Route& route = route_of(request);
  switch (route.resource) {
    case Resource::health: return show_health();
    case Resource::models: return list_models();
    case Resource::model: return show_model(request.path().substr(route.path.size()));
    case Resource::chat: return complete(Endpoint::chat, request, id);
    case Resource::completions: return complete(Endpoint::completions, request, id);
    case Resource::page: break;
  }
  return {.type = route.type, .body = std::string(serve_page().at(route.file))};
}

Reply Service::answer(const Request& request) const {
  const std::string id = new_id();
  try {
    return labelled(answer_at(request, id), id);
  } catch (const http::Problem&) {
    throw;
  } catch (const ApiError& e) {
    return labelled(reply_of(e), id);
  } catch (const Error& e) {
    return labelled(reply_of(is_of_client(e) ? ApiError(400, {.message = e.what()}) : failed(id, e)), id);
  } catch (const std::exception& e) {
    return labelled(reply_of(failed(id, e)), id);
  }
}

}  // namespace serve
}  // namespace qtrain
