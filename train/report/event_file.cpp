#include "train/report/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <string>
#include <string_view>

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

template <class Word>
std::string little_endian(Word word) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof word; ++i) bytes += static_cast<char>(word >> (8 * i));
  return bytes;
}

/// A message of Protocol Buffers: fields {number and wire type, value}.
class Message {
 public:
  Message& integer(int field, std::uint64_t value) {
    key(field, 0);
    varint(value);
    return *this;
  }
  Message& number(int field, double value) {
    key(field, 1);
    bytes_ += little_endian(std::bit_cast<std::uint64_t>(value));
    return *this;
  }
  Message& number32(int field, float value) {
    key(field, 5);
    bytes_ += little_endian(std::bit_cast<std::uint32_t>(value));
    return *this;
  }
  Message& text(int field, std::string_view value) {
    key(field, 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void key(int field, unsigned wire_type) { varint(static_cast<std::uint64_t>(field) << 3 | wire_type); }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

std::string record(const Message& event) {
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

std::string tag(const std::string& key) {
  constexpr std::string_view kEvaluation = "eval_";
  return key.starts_with(kEvaluation) ? "eval/" + key.substr(kEvaluation.size()) : "train/" + key;
}

}  // namespace

EventFile::EventFile(const fs::path& folder, std::int64_t first_step) : file_(new_file(folder)) {
  file_.append(record(Message().number(1, unix_time()).text(3, "brain.Event:2")));
  const Message session = Message().integer(1, 1);  // SessionLog {status: START}
  file_.append(record(
      Message().number(1, unix_time()).integer(2, static_cast<std::uint64_t>(first_step)).text(7, session.bytes())));
}

// Event {1: wall_time, 2: step, 5: Summary {1: Value {1: tag, 2: simple_value}, ...}}
void EventFile::append(const Json& row) {
  Message summary;
  for (const auto& [key, value] : row.items())
    if (value.is_number() && key != "step" && key != "time")
      summary.text(1, Message().text(1, tag(key)).number32(2, value.get<float>()).bytes());
  file_.append(record(Message()
                          .number(1, row.at("time").get<double>())
                          .integer(2, row.at("step").get<std::uint64_t>())
                          .text(5, summary.bytes())));
}

}  // namespace qtrain
