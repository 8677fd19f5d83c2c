#include "report/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <string>
#include <string_view>

#include "core/formats/protobuf.h"
#include "report/tracker.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = ~0u;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) ? 0x82F63B78u : 0u);
  }
  return ~crc;
}

std::string record(const ProtoMessage& event) {
  const auto masked = [](std::string_view bytes) { return little_endian(std::rotr(crc32c(bytes), 15) + 0xA282EAD8u); };
  const std::string length = little_endian(static_cast<std::uint64_t>(event.bytes().size()));
  return length + masked(length) + event.bytes() + masked(event.bytes());
}

fs::path new_file(const fs::path& folder) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) fail(ErrorKind::disk, {.cause = failed.message(), .place = folder.string()});
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return folder /
         fmt::format("events.out.tfevents.{}.{}.{}", static_cast<std::int64_t>(unix_time()), host.data(), ::getpid());
}

}  // namespace

EventFile::EventFile(const fs::path& folder, std::int64_t first_step) : file_(new_file(folder)) {
  file_.append(record(ProtoMessage().number(1, unix_time()).text(3, "brain.Event:2")));
  const ProtoMessage session = ProtoMessage().integer(1, 1);  // SessionLog {status: START}
  file_.append(record(ProtoMessage()
                          .number(1, unix_time())
                          .integer(2, static_cast<std::uint64_t>(first_step))
                          .text(7, session.bytes())));
}

// Event {1: wall_time, 2: step, 5: Summary {1: Value {1: tag, 2: simple_value}, ...}}
void EventFile::append(const Json& row) {
  ProtoMessage summary;
  for (const auto& [key, value] : row.items())
    if (value.is_number() && key != "step" && key != "time")
      summary.text(1, ProtoMessage().text(1, tag_of(key)).number32(2, value.get<float>()).bytes());
  file_.append(record(ProtoMessage()
                          .number(1, row.at("time").get<double>())
                          .integer(2, row.at("step").get<std::uint64_t>())
                          .text(5, summary.bytes())));
}

}  // namespace qtrain
