#pragma once
#include <cstdint>
#include <filesystem>

#include "core/formats/json.h"
#include "report/metrics.h"

namespace qtrain {

/// TensorBoard event file of logged rows, as scalars with the tags of transformers (train/loss, eval/loss).
/// Format of TensorBoard's EventFileWriter: records {length, crc, Event, crc}, with masked CRC-32C.
class EventFile {
 public:
  /// Creates a file in `folder`, and the folder if needed. Makes TensorBoard drop what earlier files there hold for
  /// `first_step` and later steps, because a run that resumes or starts over logs these steps again.
  EventFile(const std::filesystem::path& folder, std::int64_t first_step);
  /// Appends a row of metrics.jsonl (step, time, numbers). Throws ErrorKind::disk.
  void append(const Json& row);

 private:
  AppendedFile file_;
};

}  // namespace qtrain
