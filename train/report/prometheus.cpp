#include "train/report/prometheus.h"

#include <fmt/format.h>
#include <httplib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <mutex>
#include <thread>
#include <utility>

#include "core/error.h"
#include "core/version.h"

namespace qtrain {
namespace {

constexpr std::size_t kThreads = 2;
constexpr int kNicer = 5;        // below the run, and still awake where others are busy
constexpr time_t kPatience = 2;  // seconds that a client may take to send or receive

/// A value between quotes.
std::string label(const std::string& value) {
  std::string out;
  for (const char c : value) {
    if (c == '\n') {
      out += "\\n";
    } else {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out;
}

std::string sample_text(double x) {
  if (std::isnan(x)) return "NaN";
  if (std::isinf(x)) return x > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", x);
}

// Two servers of one port would answer in turns.
void only_one_server(int socket) {
  const int yes = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
}

}  // namespace

std::string prometheus_text(const RunGauges& g, const std::string& output_dir) {
  std::string text = fmt::format(
      "# HELP qtrain_run_info The run and the program.\n# TYPE qtrain_run_info gauge\n"
      "qtrain_run_info{{output_dir=\"{}\",version=\"{}\"}} 1\n",
      label(output_dir), kVersion);
  const auto add = [&](const char* name, const char* help, const std::optional<double>& value) {
    const std::string_view type = std::string_view(name).ends_with("_total") ? "counter" : "gauge";
    if (value) text += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n{0} {3}\n", name, help, type, sample_text(*value));
  };
  add("qtrain_step", "Updates done.", static_cast<double>(g.step));
  add("qtrain_max_steps", "Updates of the whole run.", static_cast<double>(g.max_steps));
  add("qtrain_tokens_total", "Tokens trained on.", static_cast<double>(g.tokens));
  add("qtrain_epoch", "Passes over the training rows.", g.epoch);
  add("qtrain_loss", "Mean training loss since the last logged row.", g.loss);
  add("qtrain_eval_loss", "Loss of the last evaluation.", g.eval_loss);
  add("qtrain_learning_rate", "Learning rate of the last update.", g.learning_rate);
  add("qtrain_grad_norm", "Norm of the gradients of the last update, before clipping.", g.grad_norm);
  add("qtrain_tokens_per_second", "Mean of this start of the program.", g.tokens_per_second);
  add("qtrain_eta_seconds", "Time left at this pace.", g.eta_seconds);
  add("qtrain_data_wait_ratio", "Share of the time since the last row in which steps waited for data.", g.data_wait);
  add("qtrain_resident_memory_bytes", "Resident memory of the process.", g.resident_bytes);
  add("qtrain_device_memory_bytes", "Memory allocated on the device.", g.device_bytes);
  return text;
}

struct PrometheusEndpoint::Server {
  httplib::Server http;
  std::mutex mutex;
  RunGauges gauges;
  std::atomic<bool> ended = false;
  std::thread thread;

  RunGauges copy() {
    const std::lock_guard lock(mutex);
    return gauges;
  }
};

PrometheusEndpoint::PrometheusEndpoint(Place place) : server_(std::make_unique<Server>()) {
  httplib::Server& http = server_->http;
  http.new_task_queue = [] {
    return std::make_unique<httplib::ThreadPool>(kThreads).release();
  };  // deleted by the server
  http.set_socket_options(only_one_server);
  http.set_read_timeout(kPatience);
  http.set_write_timeout(kPatience);
  http.set_keep_alive_timeout(kPatience);
  http.set_payload_max_length(1);
  http.Get(
      "/metrics", [server = server_.get(), output_dir = place.output_dir](const auto&, httplib::Response& response) {
        response.set_content(prometheus_text(server->copy(), output_dir), "text/plain; version=0.0.4; charset=utf-8");
      });
  http.Get("/", [](const auto&, httplib::Response& response) { response.set_content("see /metrics\n", "text/plain"); });
  if (!http.bind_to_port(place.host.c_str(), place.port))
    fail(ErrorKind::usage, {.cause = fmt::format("Prometheus' endpoint cannot listen at {}:{}", place.host, place.port),
                            .place = "prometheus_port",
                            .remedy = "another program has that port, or the address is not of this machine: name "
                                      "another (prometheus_port, prometheus_host), or null for none"});
  server_->thread = std::thread([&http, &ended = server_->ended] {
    const auto self = static_cast<id_t>(::syscall(SYS_gettid));
    ::setpriority(PRIO_PROCESS, self, ::getpriority(PRIO_PROCESS, self) + kNicer);  // of those it starts too
    http.listen_after_bind();
    ended = true;
  });
  while (!http.is_running() && !server_->ended) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

PrometheusEndpoint::~PrometheusEndpoint() {
  server_->http.stop();
  if (server_->thread.joinable()) server_->thread.join();
}

void PrometheusEndpoint::set(const RunGauges& gauges) {
  const std::lock_guard lock(server_->mutex);
  server_->gauges = gauges;
}

}  // namespace qtrain
