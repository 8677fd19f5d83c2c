#include "core/timeline.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "core/file.h"
#include "core/json.h"

namespace qtrain::timeline {
namespace {

constexpr std::size_t kMaxSpans = std::size_t{1} << 20;

struct Finished {
  std::string name;
  std::int64_t begin, duration;
  int lane;
};

struct Record {
  std::mutex mutex;
  std::vector<Finished> spans;
  std::map<int, std::string> lanes;
  std::map<std::thread::id, int> numbers;  ///< of lanes
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

std::string metadata(const char* what, int process, int lane, std::string_view name) {
  return fmt::format(R"({{"name":"{}","ph":"M","pid":{},"tid":{},"args":{{"name":{}}}}})", what, process, lane,
                     dump_json(std::string(name)));
}

}  // namespace

void start() {
  lane_of_this_thread();
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

void write(const std::filesystem::path& file, int process, std::string_view name) {
  g_on = false;
  const std::lock_guard lock(record().mutex);
  write_file(file, [&](const std::function<void(std::span<const std::byte>)>& append) {
    const auto line = [&](const std::string& text) { append(std::as_bytes(std::span(text))); };
    line("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" + metadata("process_name", process, 0, name));
    for (const auto& [lane, lane_name] : record().lanes)
      line(",\n" + metadata("thread_name", process, lane, lane_name));
    for (const Finished& s : record().spans)
      line(fmt::format(",\n{{\"name\":{},\"ph\":\"X\",\"ts\":{},\"dur\":{},\"pid\":{},\"tid\":{}}}", dump_json(s.name),
                       s.begin, s.duration, process, s.lane));
    line("\n]}\n");
  });
  record().spans = {};
}

Span::Span(std::string_view name, std::int64_t number) {
  if (!is_on()) return;
  name_ = number < 0 ? std::string(name) : fmt::format("{} {}", name, number);
  begin_ = now();
}

Span::~Span() {
  if (begin_ < 0 || !is_on()) return;
  Finished span{.name = std::move(name_), .begin = begin_, .duration = now() - begin_, .lane = lane_of_this_thread()};
  const std::lock_guard lock(record().mutex);
  if (record().spans.size() < kMaxSpans) record().spans.push_back(std::move(span));
}

}  // namespace qtrain::timeline
