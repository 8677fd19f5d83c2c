#include "core/timeline.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/formats/json.h"
#include "core/os/file.h"

namespace qtrain::timeline {
namespace {

struct Finished {
  std::string name;
  std::int64_t begin, duration;
  int lane;
};

struct Record {
  std::mutex mutex;
  std::vector<Finished> spans;
  std::map<int, std::string> lanes;
  std::map<std::thread::id, int> numbers;  ///< lane numbers
  Limits limits;
  std::int64_t dropped = 0;
};

std::atomic<bool> g_on{false};

Record& record() {
  static Record all;
  return all;
}

int lane_of_this_thread() {
  const std::lock_guard lock(record().mutex);
  return record()
      .numbers.try_emplace(std::this_thread::get_id(), static_cast<int>(record().numbers.size()))
      .first->second;
}

std::int64_t now() {
  using std::chrono::system_clock;
  return std::chrono::duration_cast<std::chrono::microseconds>(system_clock::now().time_since_epoch()).count();
}

/// Metadata of a process or one of its lanes.
struct Metadata {
  const char* what;
  const char* key;
  std::string value;
  int lane = 0;
};

std::string metadata(int process, const Metadata& data) {
  return fmt::format(R"({{"name":"{}","ph":"M","pid":{},"tid":{},"args":{{"{}":{}}}}})", data.what, process, data.lane,
                     data.key, dump_json(data.value));
}

}  // namespace

void start(const Limits& limits) {
  lane_of_this_thread();
  {
    const std::lock_guard lock(record().mutex);
    record().limits = limits;
  }
  g_on = true;
}

bool is_on() {
  return g_on.load(std::memory_order_relaxed);
}

void name_thread(std::string_view name) {
  const int lane = lane_of_this_thread();
  const std::lock_guard lock(record().mutex);
  record().lanes[lane] = name;
}

std::int64_t write(const std::filesystem::path& file, const Process& process) {
  g_on = false;
  const std::lock_guard lock(record().mutex);
  const std::int64_t dropped = std::exchange(record().dropped, 0);
  write_file(file, [&](const std::function<void(std::span<const std::byte>)>& append) {
    const auto line = [&](const std::string& text) { append(std::as_bytes(std::span(text))); };
    line(fmt::format("{{\"displayTimeUnit\":\"ms\",\"otherData\":{{\"dropped_spans\":{}}},\"traceEvents\":[\n",
                     dropped));
    line(metadata(process.number, {"process_name", "name", process.name}));
    line(",\n" + metadata(process.number, {"process_labels", "labels", process.label}));
    for (const auto& [lane, name] : record().lanes)
      line(",\n" + metadata(process.number, {"thread_name", "name", name, lane}));
    for (const Finished& s : record().spans)
      line(fmt::format(",\n{{\"name\":{},\"ph\":\"X\",\"ts\":{},\"dur\":{},\"pid\":{},\"tid\":{}}}", dump_json(s.name),
                       s.begin, s.duration, process.number, s.lane));
    line("\n]}\n");
  });
  record().spans = {};
  return dropped;
}

Span::Span(std::string_view name, std::int64_t number) {
  if (!is_on() && !nvtx::is_on()) return;
  name_ = number < 0 ? std::string(name) : fmt::format("{} {}", name, number);
  range_.emplace(name_);
  if (is_on()) begin_ = now();
}

Span::~Span() {
  if (begin_ < 0 || !is_on()) return;
  Finished span{.name = std::move(name_), .begin = begin_, .duration = now() - begin_, .lane = lane_of_this_thread()};
  const std::lock_guard lock(record().mutex);
  if (record().spans.size() < record().limits.max_spans)
    record().spans.push_back(std::move(span));
  else
    ++record().dropped;
}

}  // namespace qtrain::timeline
