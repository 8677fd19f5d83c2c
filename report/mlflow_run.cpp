#include <fmt/format.h>

#include <cctype>
#include <cmath>
#include <optional>

#include "core/hash.h"
#include "core/os/file.h"
#include "core/os/paths.h"
#include "report/metrics.h"
#include "report/tracker.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxParamLength = 6000, kMlflowIdLength = 32;  // MAX_PARAM_VAL_LENGTH

std::int64_t milliseconds(double time) {
  return std::llround(time * 1000);
}

std::string uri_of(const fs::path& path) {
  std::string uri = "file://";
  for (const char c : absolute_path(path).string()) {
    const bool plain =
        std::isalnum(static_cast<unsigned char>(c)) || std::string_view("/-_.~").find(c) != std::string::npos;
    uri += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return uri;
}

// An experiment id in MLflow's format, derived from the name.
std::string id_of_experiment(const std::string& name) {
  constexpr std::uint64_t kDigits = 900000000000000000u;
  return std::to_string(kDigits / 9 + std::stoull(digest_of(name).hex().substr(0, 15), nullptr, 16) % kDigits);
}

void make_folder(const fs::path& folder) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) fail(ErrorKind::disk, {.cause = failed.message(), .place = folder.string()});
}

// A JSON string is also a YAML string.
std::string quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', true, Json::error_handler_t::replace);
}

// Truncates long values as MLflow does, at a character boundary. The whole config is also stored as an artifact.
std::string cut(const std::string& text) {
  constexpr std::string_view kMark = "...";
  if (text.size() <= kMaxParamLength) return text;
  std::size_t end = kMaxParamLength - kMark.size();
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + std::string(kMark);
}

enum class MlflowStatus : std::uint8_t { running = 1, finished = 3, failed = 4, killed = 5 };

class MlflowRun final : public Tracker {
 public:
  explicit MlflowRun(const TrackedRun& tracked)
      : name_(from_environment("MLFLOW_RUN_NAME", run_name(tracked.output))),
        begun_(milliseconds(tracked.rows.empty() ? unix_time() : tracked.rows[0].at("time").get<double>())) {
    const std::string experiment = from_environment("MLFLOW_EXPERIMENT_NAME", "qtrain");
    experiment_ = id_of_experiment(experiment);
    const fs::path store = tracked.output / "mlruns", folder = store / experiment_;
    make_experiment(store / "0", "0", "Default");
    make_experiment(folder, experiment_, experiment);
    id_ = tracked.resumed_step > 0 ? earlier_run(folder) : "";
    if (id_.empty()) id_ = fresh_id(kMlflowIdLength);
    folder_ = folder / id_;
    std::error_code failed;
    fs::remove_all(folder_ / "metrics", failed);
    for (const char* part : {"metrics", "params", "tags", "artifacts"}) make_folder(folder_ / part);
    write_meta(MlflowStatus::running, {});
    for (const auto& [key, value] : tracked.config.items()) write_param(key, value);
    write_file(folder_ / "artifacts/config.json", dump_json(tracked.config));
    write_file(folder_ / "tags/mlflow.runName", name_);
    write_file(folder_ / "tags/mlflow.source.name", "qtrain");
    write_file(folder_ / "tags/mlflow.source.type", "LOCAL");
    for (const Json& row : tracked.rows) append(row);
  }

  void append(const Json& row) override {
    const std::int64_t time = milliseconds(row.at("time").get<double>());
    for (const auto& [key, value] : row.items()) {
      if (!value.is_number() || key == "step" || key == "time") continue;
      AppendedFile(folder_ / "metrics" / key)
          .append(fmt::format("{} {} {}\n", time, value.dump(), row.at("step").get<std::int64_t>()));
    }
  }

  void end(int exit_code) override {
    constexpr int kStopped = static_cast<int>(ErrorKind::stopped);
    write_meta(exit_code == 0          ? MlflowStatus::finished
               : exit_code == kStopped ? MlflowStatus::killed
                                       : MlflowStatus::failed,
               milliseconds(unix_time()));
  }

 private:
  static void make_experiment(const fs::path& folder, const std::string& id, const std::string& name) {
    if (path_exists(folder / "meta.yaml")) return;
    make_folder(folder);
    const std::int64_t now = milliseconds(unix_time());
    write_file(folder / "meta.yaml",
               fmt::format("artifact_location: {}\ncreation_time: {}\nexperiment_id: '{}'\nlast_update_time: {}\n"
                           "lifecycle_stage: active\nname: {}\n",
                           quoted(uri_of(folder)), now, id, now, quoted(name)));
  }

  // The run that was written most recently.
  static std::string earlier_run(const fs::path& experiment) {
    std::string last;
    fs::file_time_type written{};
    for (const auto& entry : fs::directory_iterator(experiment)) {
      const fs::path meta = entry.path() / "meta.yaml";
      std::error_code absent;
      if (!entry.is_directory() || !fs::exists(meta, absent)) continue;
      if (!last.empty() && fs::last_write_time(meta) <= written) continue;
      written = fs::last_write_time(meta);
      last = entry.path().filename().string();
    }
    return last;
  }

  void write_param(const std::string& key, const Json& value) const {
    if (key.find('/') != std::string::npos) return;
    const std::string text = value.is_string() ? value.get<std::string>() : dump_json(value);
    write_file(folder_ / "params" / key, cut(text));
  }

  void write_meta(MlflowStatus state, std::optional<std::int64_t> ended) const {
    write_file(folder_ / "meta.yaml",
               fmt::format("artifact_uri: {}\nend_time: {}\nentry_point_name: ''\nexperiment_id: '{}'\n"
                           "lifecycle_stage: active\nrun_id: '{}'\nrun_name: {}\nsource_name: ''\nsource_type: 4\n"
                           "source_version: ''\nstart_time: {}\nstatus: {}\ntags: []\nuser_id: ''\n",
                           quoted(uri_of(folder_ / "artifacts")), ended ? std::to_string(*ended) : "null", experiment_,
                           id_, quoted(name_), begun_, static_cast<int>(state)));
  }

  std::string name_, experiment_, id_;
  std::int64_t begun_;
  fs::path folder_;
};

}  // namespace

std::unique_ptr<Tracker> make_mlflow_run(const TrackedRun& run) {
  return std::make_unique<MlflowRun>(run);
}

}  // namespace qtrain
