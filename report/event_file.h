#pragma once
#include <cstdint>
#include <filesystem>

#include "core/formats/json.h"
#include "report/metrics.h"

namespace qtrain {

/// Logged rows as scalars that TensorBoard shows, under the tags of transformers (train/loss, eval/loss).
/// The format is that of TensorBoard's EventFileWriter: records {length, crc, Event, crc}, crc being a masked CRC-32C.
class EventFile {
 public:
  /// Begins a file in `folder`, which is made. What earlier files there say of `first_step` and later steps is taken
  /// back: a run that goes on, or starts over, logs them anew.
  EventFile(const std::filesystem::path& folder, std::int64_t first_step);
  /// `row` as in metrics.jsonl: step, time, numbers. Errors: ErrorKind::disk.
  void append(const Json& row);

 private:
  AppendedFile file_;
};

}  // namespace qtrain
