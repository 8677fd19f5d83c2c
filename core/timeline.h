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
  std::size_t max_spans = std::size_t{1} << 20;  ///< about 100 bytes each; further ones are only counted
};
/// Starts recording spans.
void start(const Limits& limits = {});
bool is_on();
/// Names the lane of this thread; a lane without a name shows its number.
void name_thread(std::string_view name);
/// The process that a timeline is about.
struct Process {
  int number = 0;
  std::string name, label;  ///< "rank 3"; the device it computes on
};
/// Stops recording and writes the recorded spans. Returns how many were dropped beyond the limit, which the file says
/// too (otherData.dropped_spans). Errors: ErrorKind::disk.
std::int64_t write(const std::filesystem::path& file, const Process& process);

/// Records a span from construction to destruction, on the lane of its thread and as an NVTX range. Does nothing unless
/// the timeline or NVTX is on.
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
