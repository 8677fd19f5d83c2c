#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "core/nvtx.h"

namespace qtrain {

/// Records what the threads of this process do and when, as Chrome trace events for Perfetto and chrome://tracing. For
/// a GPU it shows when the host queues work.
namespace timeline {

struct Limits {
  std::size_t most = std::size_t{1} << 20;  ///< spans that are kept, each some 100 bytes; more are counted
};
/// Starts recording spans.
void start(const Limits& limits = {});
bool is_on();
/// The name of this thread's lane; its number without one.
void name_thread(std::string_view name);
/// Whose lanes a timeline has.
struct Process {
  int number = 0;
  std::string name, label;  ///< "rank 3"; what it computes on
};
/// Writes what was kept and ends it. Returns how many spans are missing at its end, which the file has too
/// (otherData.dropped_spans). Errors: ErrorKind::disk.
std::int64_t write(const std::filesystem::path& file, const Process& process);

/// From its construction to its end, on the lane of its thread, and for a profiler; nothing unless the timeline or NVTX
/// is on.
class Span {
 public:
  explicit Span(std::string_view name, std::int64_t number = -1);
  ~Span();
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  std::string name_;
  std::int64_t begin_ = -1;  ///< microseconds since 1970
  std::optional<nvtx::Range> range_;
};

}  // namespace timeline
}  // namespace qtrain
