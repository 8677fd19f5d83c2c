#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace qtrain {

/// Where a run stands, for those who ask from outside. What is not known yet is left out.
struct RunGauges {
  std::int64_t step = 0, max_steps = 0, tokens = 0;  ///< of the whole run
  std::optional<double> epoch, loss, eval_loss, learning_rate, grad_norm, tokens_per_second, eta_seconds;
  std::optional<double> data_wait;  ///< share of the time in which the steps waited for rows
  std::optional<double> resident_bytes, device_bytes;
};

/// In Prometheus' text exposition format, version 0.0.4. `output_dir` names the run.
std::string prometheus_text(const RunGauges& gauges, const std::string& output_dir);

/// `GET /metrics` of a run as long as this lives, for those who ask for this machine by its own name or address. Its
/// threads have a lower priority and only copy what `set` left,
/// so that whoever asks, and how often, neither slows nor changes the run.
class PrometheusEndpoint {
 public:
  struct Place {
    std::string host;
    int port = 0;
    std::string output_dir;
  };
  /// Errors: ErrorKind::usage where the address cannot be had.
  explicit PrometheusEndpoint(Place place);
  ~PrometheusEndpoint();
  PrometheusEndpoint(const PrometheusEndpoint&) = delete;
  PrometheusEndpoint& operator=(const PrometheusEndpoint&) = delete;

  void set(const RunGauges& gauges);
  int port() const { return port_; }

 private:
  struct Server;
  std::unique_ptr<Server> server_;
  int port_ = 0;
};

}  // namespace qtrain
