#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace qtrain {

/// Current state of a run for monitoring. Values that are not known yet are empty.
struct RunGauges {
  std::int64_t step = 0, max_steps = 0, tokens = 0;  ///< of the whole run
  std::optional<double> epoch, loss, eval_loss, learning_rate, grad_norm, tokens_per_second, eta_seconds;
  std::optional<double> data_wait;  ///< share of the time that steps spent waiting for rows
  std::optional<double> resident_bytes, device_bytes;
};

/// The gauges in Prometheus' text exposition format, version 0.0.4. `output_dir` names the run.
std::string prometheus_text(const RunGauges& gauges, const std::string& output_dir);

/// Serves `GET /metrics` of a run while this object lives; requests must name this machine as the host. Its threads run
/// at a lower priority and only copy what `set` stored, so that requests do not slow the run down.
class PrometheusEndpoint {
 public:
  struct Place {
    std::string host;
    int port = 0;
    std::string output_dir;
  };
  /// Throws ErrorKind::usage if it cannot listen on the address.
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
