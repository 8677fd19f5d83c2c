#include <fmt/chrono.h>
#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <ctime>
#include <optional>

#include "core/formats/protobuf.h"
#include "core/version.h"
#include "report/metrics.h"
#include "report/tracker.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFolderBegin = "offline-run-";
constexpr std::string_view kStep = "train/global_step";  // x axis of W&B's charts, as in transformers
constexpr std::size_t kWandbIdLength = 8;

// Fields of wandb_internal.proto.
namespace wandb_record {
constexpr int kNumber = 1, kHistory = 2, kSummary = 3, kMetric = 12, kRun = 17, kExit = 18, kHeader = 21;
}
namespace run {
constexpr int kId = 1, kEntity = 2, kProject = 3, kConfig = 4, kDisplayName = 8, kStartTime = 17;
}
constexpr int kUpdate = 1, kKey = 1, kNestedKey = 2, kValueJson = 16, kItem = 1, kHistoryStep = 2;

std::uint32_t crc32_of(std::string_view bytes) {
  return static_cast<std::uint32_t>(
      ::crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
}

/// A LevelDB log: records in blocks of 32 KiB, split at block ends into parts {checksum, length, kind, bytes}.
class RecordLog {
 public:
  explicit RecordLog(const fs::path& file) : file_(file) {
    constexpr std::string_view kMagic(":W&B\xE1\xBE\x00", 7);
    put(std::string(kMagic));
  }
  void append(std::string_view bytes) {
    std::string text;
    bool first = true;
    while (true) {
      std::size_t room = kBlock - (size_ + text.size()) % kBlock;
      if (room < kHeader) {
        text.append(room, '\0');
        room = kBlock;
      }
      const std::string_view part = bytes.substr(0, room - kHeader);
      bytes.remove_prefix(part.size());
      const Kind kind = first ? (bytes.empty() ? kFull : kFirst) : (bytes.empty() ? kLast : kMiddle);
      const std::string content = std::string(1, static_cast<char>(kind)).append(part);
      text += little_endian(crc32_of(content)) + little_endian(static_cast<std::uint16_t>(part.size())) + content;
      if (bytes.empty()) break;
      first = false;
    }
    put(text);
  }
  void sync() { file_.sync(); }

 private:
  enum Kind : std::uint8_t { kFull = 1, kFirst, kMiddle, kLast };
  static constexpr std::size_t kBlock = 32768, kHeader = 7;
  void put(const std::string& text) {
    file_.append(text);
    size_ += text.size();
  }

  AppendedFile file_;
  std::size_t size_ = 0;
};

std::string id_in(const fs::path& folder) {
  const std::string name = folder.filename().string();
  return name.substr(name.rfind('-') + 1);
}

bool was_sent(const fs::path& folder) {
  std::error_code absent;
  return fs::exists(folder / fmt::format("run-{}.wandb.synced", id_in(folder)), absent);
}

// A folder name with a time that no other run of this id has.
fs::path fresh_folder(const fs::path& wandb, const std::string& id) {
  std::error_code absent;
  for (auto time = static_cast<std::time_t>(unix_time());; ++time) {
    fs::path folder = wandb / fmt::format("{}{:%Y%m%d_%H%M%S}-{}", kFolderBegin, fmt::gmtime(time), id);
    if (!fs::exists(folder, absent)) return folder;
  }
}

// The run that was started most recently.
std::optional<fs::path> earlier_run(const fs::path& wandb) {
  std::optional<fs::path> last;
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(wandb, absent)) {
    const fs::path& folder = entry.path();
    if (folder.filename().string().starts_with(kFolderBegin) && (!last || folder.filename() > last->filename()))
      last = folder;
  }
  return last;
}

class WandbRun final : public Tracker {
 public:
  explicit WandbRun(const TrackedRun& tracked) : begun_(tracked.rows.empty() ? unix_time() : time_of(tracked.rows[0])) {
    const fs::path wandb = tracked.output / "wandb";
    const std::optional<fs::path> earlier = tracked.resumed_step > 0 ? earlier_run(wandb) : std::nullopt;
    id_ = earlier ? id_in(*earlier) : fresh_id(kWandbIdLength);
    const fs::path folder = fresh_folder(wandb, id_), pending = wandb / (".pending-" + id_);
    const auto require = [&](const std::error_code& failed) {
      if (failed) fail(ErrorKind::disk, {.cause = failed.message(), .place = folder.string()});
    };
    std::error_code failed;
    fs::remove_all(pending, failed);
    fs::create_directories(pending / "files", failed);
    require(failed);
    log_.emplace(pending / fmt::format("run-{}.wandb", id_));
    begin(tracked);
    for (const Json& row : tracked.rows) append(row);
    log_->sync();
    fs::rename(pending, folder, failed);
    require(failed);
    if (earlier && !was_sent(*earlier)) fs::remove_all(*earlier, failed);  // the new file contains it
  }

  void append(const Json& row) override {
    ProtoMessage history, summary;
    const auto add = [&](std::string_view key, const Json& value) {
      const std::string json = value.dump();
      history.message(kItem, ProtoMessage().text(kNestedKey, key).text(kValueJson, json));
      summary.message(kUpdate, ProtoMessage().text(kNestedKey, key).text(kValueJson, json));
    };
    for (const auto& [key, value] : row.items())
      if (value.is_number() && key != "step" && key != "time") add(tag_of(key), value);
    add(kStep, row.at("step"));
    add("_step", rows_);
    add("_timestamp", time_of(row));
    add("_runtime", time_of(row) - begun_);
    history.message(kHistoryStep, ProtoMessage().integer(1, static_cast<std::uint64_t>(rows_++)));
    put(wandb_record::kSummary, summary);
    put(wandb_record::kHistory, history);
  }

  void end(int exit_code) override {
    constexpr int kCode = 1, kRuntime = 2;
    put(wandb_record::kExit, ProtoMessage()
                                 .integer(kCode, static_cast<std::uint64_t>(exit_code))
                                 .integer(kRuntime, static_cast<std::uint64_t>(std::max(unix_time() - begun_, 0.0))));
  }

 private:
  static double time_of(const Json& row) { return row.at("time").get<double>(); }

  void begin(const TrackedRun& tracked) {
    constexpr int kVersion = 1, kProducer = 1, kName = 1, kGlob = 2, kStepMetric = 4, kOptions = 6, kStepSync = 1;
    put(wandb_record::kHeader,
        ProtoMessage().message(kVersion, ProtoMessage().text(kProducer, "qtrain " + std::string(qtrain::kVersion))));
    ProtoMessage config;
    for (const auto& [key, value] : tracked.config.items())
      config.message(kUpdate, ProtoMessage().text(kKey, key).text(kValueJson, dump_json(value)));
    ProtoMessage run;
    run.text(run::kId, id_);
    if (const std::string entity = from_environment("WANDB_ENTITY", ""); !entity.empty())
      run.text(run::kEntity, entity);
    run.text(run::kProject, from_environment("WANDB_PROJECT", "qtrain"))
        .message(run::kConfig, config)
        .text(run::kDisplayName, from_environment("WANDB_NAME", run_name(tracked.output)))
        .message(run::kStartTime, ProtoMessage().integer(1, static_cast<std::uint64_t>(begun_)));
    put(wandb_record::kRun, run);
    put(wandb_record::kMetric, ProtoMessage().text(kName, kStep));
    put(wandb_record::kMetric, ProtoMessage()
                                   .text(kGlob, "*")
                                   .text(kStepMetric, kStep)
                                   .message(kOptions, ProtoMessage().integer(kStepSync, 1)));
  }

  void put(int field, const ProtoMessage& content) {
    log_->append(ProtoMessage().integer(wandb_record::kNumber, ++records_).message(field, content).bytes());
  }

  double begun_;
  std::string id_;
  std::optional<RecordLog> log_;
  std::uint64_t records_ = 0;
  std::int64_t rows_ = 0;
};

}  // namespace

std::unique_ptr<Tracker> make_wandb_run(const TrackedRun& run) {
  return std::make_unique<WandbRun>(run);
}

}  // namespace qtrain
