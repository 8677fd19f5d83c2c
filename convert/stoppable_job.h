#pragma once
#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/formats/gguf_write.h"
#include "core/formats/safetensors.h"
#include "core/os/stop.h"
#include "core/progress.h"

namespace qtrain {

/// Progress of a job that can be stopped at any time: shows a bar and throws ErrorKind::stopped.
class StoppableJob {
 public:
  /// Shows no bar if `log` is null.
  StoppableJob(Log* log, ProgressBar::Job job) {
    if (log != nullptr) bar_.emplace(*log, std::move(job));
  }
  void advance(std::int64_t steps = 1) {
    throw_if_stopped();
    if (bar_) bar_->advance(steps);
  }

 private:
  std::optional<ProgressBar> bar_;
};

/// Bytes of all tensors to write.
inline std::int64_t bytes_of(const std::vector<TensorSource>& tensors) {
  std::int64_t bytes = 0;
  for (const TensorSource& t : tensors) bytes += t.shape.numel() * static_cast<std::int64_t>(size_of(t.dtype));
  return bytes;
}

inline std::int64_t bytes_of(const std::vector<GgufTensorSource>& tensors) {
  std::uint64_t bytes = 0;
  for (const GgufTensorSource& t : tensors) {
    std::uint64_t values = 1;
    for (const std::int64_t extent : t.shape) values *= static_cast<std::uint64_t>(extent);
    bytes += values / gguf_block(t.type)->values * gguf_block(t.type)->bytes;
  }
  return static_cast<std::int64_t>(bytes);
}

inline constexpr std::size_t kWatchedChunk = std::size_t{1} << 22;

/// Wraps tensors for a writer (TensorSource, GgufTensorSource) so that writing their bytes advances `job`, a few MB at
/// a time.
template <class Source>
std::vector<Source> watched(std::vector<Source> tensors, StoppableJob& job) {
  using Append = std::function<void(std::span<const std::byte>)>;
  for (Source& tensor : tensors)
    tensor.produce = [produce = std::move(tensor.produce), &job](const Append& append) {
      produce([&](std::span<const std::byte> bytes) {
        while (!bytes.empty()) {
          const auto chunk = bytes.first(std::min(kWatchedChunk, bytes.size()));
          job.advance(static_cast<std::int64_t>(chunk.size()));
          append(chunk);
          bytes = bytes.subspan(chunk.size());
        }
      });
    };
  return tensors;
}

}  // namespace qtrain
