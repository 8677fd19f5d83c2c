#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <thread>

#include "app/commands/commands.h"
#include "app/commands/model_flags.h"
#include "app/serve/cache_size.h"
#include "app/serve/service.h"
#include "core/os/file.h"
#include "core/os/loopback.h"
#include "core/os/stop.h"
#include "core/utf8.h"
#include "dist/open_files.h"
#include "plan/machine.h"
#include "train/setup/compute.h"

namespace qtrain {
namespace serve {
namespace {

constexpr std::int64_t kMaxContext = 32768;
constexpr std::chrono::seconds kGrace{5};  // time for answers to finish after a stop
constexpr int kDefaultPort = 8000, kMaxPort = 65535;

std::int64_t positive(const Arguments& args, const char* flag, std::int64_t otherwise) {
  const std::int64_t value = args.integer(flag).value_or(otherwise);
  if (value < 1) fail(ErrorKind::usage, {.cause = fmt::format("--{} must be at least 1", flag)});
  return value;
}

// Counts of things that are kept in memory.
std::int64_t count(const Arguments& args, const char* flag, std::int64_t otherwise) {
  constexpr std::int64_t kMaxCount = 1 << 20;
  const std::int64_t value = positive(args, flag, otherwise);
  if (value > kMaxCount) fail(ErrorKind::usage, {.cause = fmt::format("--{} must be at most {}", flag, kMaxCount)});
  return value;
}

// Each connection takes a descriptor; beyond their limit, clients would wait instead of being refused.
std::int64_t connection_limit(const Arguments& args) {
  constexpr std::int64_t kOthers = 48;  // files, pipes, and connections that are refused
  const std::int64_t wanted = count(args, "max_connections", http::Limits{}.connections);
  raise_open_files();
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= static_cast<rlim_t>(wanted + kOthers)) return wanted;
  const auto most = std::max<std::int64_t>(1, static_cast<std::int64_t>(files.rlim_cur) - kOthers);
  if (most < wanted)
    args.log().warn("only {} connections at a time instead of {}, because of the limit of open files (ulimit -n {})",
                    most, wanted, files.rlim_cur);
  return most;
}

// Whether a header can end with the token: other blanks at its ends are not part of a value.
bool can_be_sent(const std::string& token) {
  const auto is_control = [](unsigned char c) { return c < ' ' || c == 0x7f; };
  return std::ranges::none_of(token, is_control) && !token.starts_with(' ') && !token.ends_with(' ');
}

std::string token_of(const Arguments& args) {
  if (args.has("token") && args.has("token_file"))
    fail(ErrorKind::usage, {.cause = "give either --token or --token_file, not both"});
  std::string token = args.text("token").value_or("");
  if (const auto file = args.text("token_file")) {
    constexpr std::uint64_t kMaxBytes = 4096;
    token = read_text(*file, kMaxBytes);
    token.erase(token.find_last_not_of(" \t\r\n") + 1);
  }
  if ((args.has("token") || args.has("token_file")) && token.empty())
    fail(ErrorKind::usage, {.cause = "the token is empty"});
  if (!can_be_sent(token))
    fail(ErrorKind::usage, {.cause = "the token has a control character, or a blank at its beginning or end",
                            .remedy = "no client could send it: choose another one"});
  return token;
}

ServiceOptions service_options(const Arguments& args) {
  ServiceOptions o{.host = args.text("host").value_or("127.0.0.1"), .token = token_of(args)};
  if (!is_loopback(o.host) && o.token.empty())
    fail(ErrorKind::usage,
         {.cause = fmt::format("--host {} lets other machines connect, but no token is set", o.host),
          .remedy = "set the clients' API key with --token T or --token_file FILE, or listen on this machine only "
                    "(--host 127.0.0.1)"});
  o.requests.max_new_tokens = positive(args, "max_new_tokens", o.requests.max_new_tokens);
  return o;
}

AnswerModelRequest base_request(const Arguments& args) {
  return {.model = args.required("model"),
          .dtype = args.text("dtype").value_or("auto"),
          .quantization = quantization_of(args)};
}

// The cache takes a quarter of the host memory that the models leave (other programs need it, too), or 60 % of a GPU's.
// The models' position tables grow with the context as well.
CacheMemory memory_for_cache(const ServedModels& models, const BatchLimits& limits) {
  const Transformer& base = *models[0].answers.setup.model;
  const bool gpu = base.device().kind == DeviceKind::cuda;
  const double there = gpu ? static_cast<double>(cuda_info(base.device().index).free_bytes) : machine_memory().usable();
  BatchLimits least = limits;
  least.context = 1;
  const std::size_t fixed = models.bytes(least);
  const std::size_t tables = (models.bytes(limits) - fixed) / static_cast<std::size_t>(limits.context);
  const double left = there - static_cast<double>(fixed);
  return {.left = 0.9 * left,
          .share = (gpu ? 0.6 : 0.25) * left,
          .per_token = ContinuousBatch::bytes_per_token(base) + tables};
}

BatchLimits batch_limits(const Arguments& args, const ServedModels& models) {
  const auto given = [&](const char* flag) {
    return args.has(flag) ? std::optional(positive(args, flag, 0)) : std::nullopt;
  };
  const std::int64_t longest = models[0].answers.setup.model->config().max_position_embeddings;
  CacheRequest request{.context = given("max_context"),
                       .tokens = given("cache_tokens"),
                       .usual = std::min(longest, kMaxContext),
                       .sequences = count(args, "max_batch", BatchLimits{}.sequences)};
  if (request.context) request.context = std::min(longest, *request.context);
  BatchLimits limits{.sequences = request.sequences, .context = request.context.value_or(request.usual)};
  const CacheSize size = cache_size(request, memory_for_cache(models, limits));
  if (size.context < limits.context)
    args.log().warn("the context is limited to {} tokens instead of {}, because the cache holds no more{}",
                    size.context, limits.context, request.tokens ? "" : "; set --max_context to get more");
  limits.context = size.context;
  limits.cache_tokens = size.tokens;
  return limits;
}

void announce(const Arguments& args, const ServedModels& models, const std::string& url, int port) {
  args.log().stream(fmt::format("ready: {} ({}; press Ctrl-C to quit)\n", url,
                                one_line(fmt::format("{}", fmt::join(models.names(), ", ")))));
  args.give({.text = "", .json = {{"ready", true}, {"url", url}, {"port", port}, {"models", models.names()}}});
}

int bind(http::Server& server, const std::string& host, int port) {
  try {
    return server.bind(host, port);
  } catch (const std::system_error& e) {
    const bool in_use = e.code() == std::errc::address_in_use;
    fail(ErrorKind::usage,
         {.cause = in_use ? "the port is in use" : "the server cannot listen on this address: " + e.code().message(),
          .place = fmt::format("{}:{}", host, port),
          .remedy = in_use ? "choose another port with --port, or 0 for any free one"
                           : "give an address of this machine with --host"});
  }
}

// Lets unfinished answers complete after a stop, for at most kGrace.
void end_when_asked(Engine& engine, http::Server& server) {
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
  if (port < 0 || port > kMaxPort) fail(ErrorKind::usage, {.cause = "--port must be a number from 0 to 65535"});
  http::Server server({.connections = connection_limit(args)});
  const int bound = bind(server, given.host, static_cast<int>(port));

  const AnswerModelRequest base = base_request(args);
  Ctx ctx = make_context(
      answer_compute(base, {.device = args.device(), .threads = static_cast<int>(args.integer("threads").value_or(0))}),
      args.log());
  ServedModels models(ctx, {.base = base, .adapters = args.all("adapter")});
  const Transformer& model = *models[0].answers.setup.model;
  const BatchLimits limits = batch_limits(args, models);
  models.load(ctx, limits, args.log());
  ContinuousBatch batch(ctx, models.runners(), limits);
  Engine engine(batch, count(args, "max_queue", 64), args.log());
  ServiceOptions options = given;
  options.requests.context = limits.context;
  Service service(engine, models, options, args.log());
  args.log().info("context of {} tokens, up to {} answers at a time, cache of {} tokens ({:.2f} GiB)", limits.context,
                  limits.sequences, limits.cache_tokens,
                  static_cast<double>(limits.cache_tokens) *
                      static_cast<double>(ContinuousBatch::bytes_per_token(model)) / (1 << 30));
  loading.reset();
  throw_if_stopped();  // a stop may have been requested just before loading ended

  set_stop_answer("Finishing the answers in progress. Press Ctrl-C again to quit now.");
  std::thread listening, stopping;
  const auto join = [&] {
    for (std::thread* thread : {&stopping, &listening})
      if (thread->joinable()) thread->join();
  };
  const std::string host = given.host.find(':') == std::string::npos ? given.host : "[" + given.host + "]";
  try {
    listening = std::thread([&] { server.listen(service); });
    stopping = std::thread([&] { end_when_asked(engine, server); });
    announce(args, models, fmt::format("http://{}:{}", host, bound), bound);
    engine.run();
  } catch (...) {
    engine.end();
    server.wind_up();
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
