#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace qtrain {

/// What the threads of this process do when, in the form of Chrome's trace events, which Perfetto and chrome://tracing
/// show. Of a GPU it is when the host queues work.
namespace timeline {

/// From here on spans are kept, up to about a million; each takes some 100 bytes.
void start();
bool is_on();
/// The name of this thread's lane; its number without one.
void name_thread(std::string_view name);
/// Writes what was kept and ends it. `process` and its name are those of the lanes. Errors: ErrorKind::disk.
void write(const std::filesystem::path& file, int process, std::string_view name);

/// From its construction to its end, on the lane of its thread; nothing unless the timeline is on.
class Span {
 public:
  explicit Span(std::string_view name, std::int64_t number = -1);
  ~Span();
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  std::string name_;
  std::int64_t begin_ = -1;  ///< microseconds since 1970
};

}  // namespace timeline
}  // namespace qtrain
