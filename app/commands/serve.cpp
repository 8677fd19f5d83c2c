#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "app/commands/commands.h"
#include "app/serve/service.h"
#include "core/file.h"
#include "core/stop.h"
#include "train/plan/compute.h"
#include "train/plan/machine.h"

namespace qtrain {
namespace serve {
namespace {

constexpr std::int64_t kMaxContext = 32768;
constexpr std::chrono::seconds kGrace{5};  // in which answers may finish after a stop
constexpr int kDefaultPort = 8000, kMaxPort = 65535;

std::int64_t positive(const Arguments& args, const char* flag, std::int64_t otherwise) {
  const std::int64_t value = args.integer(flag).value_or(otherwise);
  if (value < 1) fail(ErrorKind::usage, {.cause = fmt::format("--{} must be at least 1", flag)});
  return value;
}

std::string token_of(const Arguments& args) {
  if (args.has("token") && args.has("token_file"))
    fail(ErrorKind::usage, {.cause = "give either --token or --token_file"});
  std::string token = args.text("token").value_or("");
  if (const auto file = args.text("token_file")) {
    constexpr std::uint64_t kMost = 4096;
    token = read_text(*file, kMost);
    token.erase(token.find_last_not_of(" \t\r\n") + 1);
  }
  if ((args.has("token") || args.has("token_file")) && token.empty())
    fail(ErrorKind::usage, {.cause = "the token is empty"});
  return token;
}

ServiceOptions service_options(const Arguments& args) {
  ServiceOptions o{.host = args.text("host").value_or("127.0.0.1"), .token = token_of(args)};
  if (!is_loopback(o.host) && o.token.empty())
    fail(ErrorKind::usage,
         {.cause = fmt::format("--host {} lets other machines ask, and there is no token", o.host),
          .remedy = "add --token T or --token_file FILE, which clients then send as their API key, or "
                    "stay on this machine (127.0.0.1)"});
  o.requests.max_new_tokens = positive(args, "max_new_tokens", o.requests.max_new_tokens);
  return o;
}

AnswerModelRequest base_request(const Arguments& args) {
  return {.model = args.required("model"),
          .dtype = args.text("dtype").value_or("auto"),
          .quantization =
              quantization_asked({.load_in_4bit = args.has("load_in_4bit"), .load_in_8bit = args.has("load_in_8bit")})};
}

// What the cache may take of memory that is left: a quarter on a processor, which others use too, most of it on a GPU.
double memory_for_cache(Device device) {
  if (device.kind == DeviceKind::cuda) return 0.6 * static_cast<double>(cuda_info(device.index).free_bytes);
  return 0.25 * machine_memory().usable();
}

BatchLimits batch_limits(const Arguments& args, const Transformer& base) {
  BatchLimits n{.sequences = positive(args, "max_batch", BatchLimits{}.sequences)};
  const std::int64_t longest = base.config().max_position_embeddings;
  n.context = std::min(longest, positive(args, "max_context", std::min(longest, kMaxContext)));
  return n;
}

std::int64_t cache_tokens(const Arguments& args, const BatchLimits& n, const Transformer& base) {
  const auto fits = static_cast<std::int64_t>(memory_for_cache(base.device()) /
                                              static_cast<double>(ContinuousBatch::bytes_per_token(base)));
  const std::int64_t all = n.sequences * n.context;
  return std::max(n.context, positive(args, "cache_tokens", std::min(all, fits)));
}

void announce(const Arguments& args, const ServedModels& models, const std::string& url, int port) {
  args.log().stream(fmt::format("ready: {} ({}; Ctrl-C ends)\n", url, fmt::join(models.names(), ", ")));
  args.give({.text = "", .json = {{"ready", true}, {"url", url}, {"port", port}, {"models", models.names()}}});
}

// Lets answers that are under way finish after a stop, but not for long.
void end_when_asked(Engine& engine, HttpServer& server) {
  constexpr std::chrono::milliseconds kWatch{50};
  while (!engine.ended() && !stop_requested()) std::this_thread::sleep_for(kWatch);
  engine.close();
  const auto end = std::chrono::steady_clock::now() + kGrace;
  while (!engine.ended() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(kWatch);
  engine.end();
  server.wind_up();
}

int run(const Arguments& args) {
  std::optional<StopsAtOnce> loading(std::in_place);
  const ServiceOptions given = service_options(args);
  const std::int64_t port = args.integer("port").value_or(kDefaultPort);
  if (port < 0 || port > kMaxPort) fail(ErrorKind::usage, {.cause = "--port is a number from 0 to 65535"});
  const HttpLimits http{.connections = positive(args, "max_connections", HttpLimits{}.connections)};
  HttpServer server(http);
  const int bound = server.bind(given.host, static_cast<int>(port));

  const AnswerModelRequest base = base_request(args);
  Ctx ctx = make_context(
      answer_compute(base, {.device = args.device(), .threads = static_cast<int>(args.integer("threads").value_or(0))}),
      args.log());
  ServedModels models(ctx, {.base = base, .adapters = args.all("adapter")});
  const Transformer& model = *models[0].answers.setup.model;
  BatchLimits limits = batch_limits(args, model);
  models.load(ctx, limits, args.log());
  limits.cache_tokens = cache_tokens(args, limits, model);
  ContinuousBatch batch(ctx, models.transformers(), limits);
  Engine engine(batch, positive(args, "max_queue", 64), args.log());
  ServiceOptions options = given;
  options.requests.context = limits.context;
  Service service(engine, models, options, args.log());
  service.add_routes(server);
  args.log().info("{} tokens of context, {} answers at a time, {} tokens in the cache ({:.2f} GiB)", limits.context,
                  limits.sequences, limits.cache_tokens,
                  static_cast<double>(limits.cache_tokens) *
                      static_cast<double>(ContinuousBatch::bytes_per_token(model)) / (1 << 30));
  loading.reset();
  throw_if_stopped();  // in the last moment

  set_stop_answer("finishing the answers that are under way; again leaves at once");
  std::thread listening([&] { server.listen(); });
  std::thread stopping([&] { end_when_asked(engine, server); });
  const auto join = [&] {
    stopping.join();
    listening.join();
  };
  const std::string host = given.host.find(':') == std::string::npos ? given.host : "[" + given.host + "]";
  try {
    announce(args, models, fmt::format("http://{}:{}", host, bound), bound);
    engine.run();
  } catch (...) {
    engine.end();
    join();
    throw;
  }
  join();
  return 0;
}

}  // namespace
}  // namespace serve

int run_serve(const Arguments& args) {
  return serve::run(args);
}

}  // namespace qtrain
