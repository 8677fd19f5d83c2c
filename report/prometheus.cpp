#include "report/prometheus.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "core/error.h"
#include "core/http/authority.h"
#include "core/http/server.h"
#include "core/utf8.h"
#include "core/version.h"

namespace qtrain {
namespace {

constexpr int kNicer = 5;  // lower priority than the run, but still served on a busy machine
constexpr http::Limits kLimits{.connections = 16,
                               .body_bytes = 0,
                               .header_time = std::chrono::seconds(2),
                               .body_time = std::chrono::seconds(2),
                               .idle_time = std::chrono::seconds(5),
                               .write_time = std::chrono::seconds(2)};

/// A label value, escaped for use between quotes. The format requires UTF-8, and of the control characters it can
/// only escape line ends.
std::string label(const std::string& value) {
  std::string out;
  for (const char c : printable(value)) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += ' ';
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

}  // namespace

std::string prometheus_text(const RunGauges& g, const std::string& output_dir) {
  std::string text = fmt::format(
      "# HELP qtrain_run_info Output folder of the run and version of qtrain.\n# TYPE qtrain_run_info gauge\n"
      "qtrain_run_info{{output_dir=\"{}\",version=\"{}\"}} 1\n",
      label(output_dir), kVersion);
  const auto add = [&](const char* name, const char* help, const std::optional<double>& value) {
    const std::string_view type = std::string_view(name).ends_with("_total") ? "counter" : "gauge";
    if (value) text += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n{0} {3}\n", name, help, type, sample_text(*value));
  };
  add("qtrain_step", "Optimizer steps done.", static_cast<double>(g.step));
  add("qtrain_max_steps", "Optimizer steps of the whole run.", static_cast<double>(g.max_steps));
  add("qtrain_tokens_total", "Tokens trained on so far.", static_cast<double>(g.tokens));
  add("qtrain_epoch", "Passes over the training rows.", g.epoch);
  add("qtrain_loss", "Mean training loss since the last logged row.", g.loss);
  add("qtrain_eval_loss", "Loss of the last evaluation.", g.eval_loss);
  add("qtrain_learning_rate", "Learning rate of the last optimizer step.", g.learning_rate);
  add("qtrain_grad_norm", "Gradient norm of the last optimizer step, before clipping.", g.grad_norm);
  add("qtrain_tokens_per_second", "Mean training speed since this process started.", g.tokens_per_second);
  add("qtrain_eta_seconds", "Estimated time left.", g.eta_seconds);
  add("qtrain_data_wait_ratio", "Share of the time since the last logged row spent waiting for data.", g.data_wait);
  add("qtrain_resident_memory_bytes", "Resident memory of the process.", g.resident_bytes);
  add("qtrain_device_memory_bytes", "Memory allocated on the device.", g.device_bytes);
  return text;
}

struct PrometheusEndpoint::Server final : http::Handler {
  explicit Server(Place at) : place(std::move(at)) {}

  std::optional<http::Reply> refuse(const http::Request& head) const override {
    http::require_own_origin(head, place.host);
    const bool is_get = head.method == "GET" || head.method == "HEAD";
    if (head.path() != "/" && head.path() != "/metrics") return http::Reply{.status = 404, .body = "see /metrics\n"};
    if (!is_get)
      return http::Reply{.status = 405, .body = "only GET is supported\n", .headers = {{"Allow", "GET, HEAD"}}};
    return {};
  }
  http::Reply answer(const http::Request& request) const override {
    if (request.path() == "/") return {.body = "see /metrics\n"};
    return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = prometheus_text(copy(), place.output_dir)};
  }
  http::Reply reply_to(const http::Problem& problem) const override {
    return {.status = problem.status(), .body = std::string(problem.what()) + "\n"};
  }
  RunGauges copy() const {
    const std::lock_guard lock(mutex);
    return gauges;
  }

  const Place place;
  http::Server server{kLimits};
  mutable std::mutex mutex;
  RunGauges gauges;
  std::thread thread;
};

PrometheusEndpoint::PrometheusEndpoint(Place place) : server_(std::make_unique<Server>(std::move(place))) {
  const Place& at = server_->place;
  try {
    port_ = server_->server.bind(at.host, at.port);
  } catch (const std::system_error&) {
    fail(ErrorKind::usage,
         {.cause = fmt::format("the Prometheus endpoint cannot listen on {}:{}", at.host, at.port),
          .place = "prometheus_port",
          .remedy = "another program uses the port, or this machine does not have the address: change "
                    "prometheus_port or prometheus_host, or set prometheus_port=null to turn it off"});
  }
  server_->thread = std::thread([server = server_.get()] {
    const auto self = static_cast<id_t>(::syscall(SYS_gettid));
    ::setpriority(PRIO_PROCESS, self,
                  ::getpriority(PRIO_PROCESS, self) + kNicer);  // inherited by the threads it starts
    server->server.listen(*server);
  });
}

PrometheusEndpoint::~PrometheusEndpoint() {
  server_->server.wind_up();
  server_->thread.join();
}

void PrometheusEndpoint::set(const RunGauges& gauges) {
  const std::lock_guard lock(server_->mutex);
  server_->gauges = gauges;
}

}  // namespace qtrain
