#include "dist/store_request.h"

#include <algorithm>
#include <cstring>
#include <limits>

/// A request consists of a verb, the time to wait in ms, the lengths of key and value (u32 each), the key and the
/// value. An answer consists of a flag whether there is a value, its length (u32 each), and the value. Numbers have the
/// byte order of this machine, little-endian.
namespace qtrain {
namespace {

struct RequestHead {
  std::uint32_t verb = 0, patience = 0, key = 0, value = 0;
};
struct AnswerHead {
  std::uint32_t found = 0, value = 0;
};

constexpr std::int32_t kMaxPatience = std::numeric_limits<std::int32_t>::max();  // ms: 24 days

template <class Head>
std::optional<Head> read_head(const ReadBytes& read) {
  Head head;
  if (!read(std::as_writable_bytes(std::span(&head, 1)))) return {};
  return head;
}

template <class Head>
std::string message(const Head& head, const std::string& body) {
  std::string m(sizeof head, '\0');
  std::memcpy(m.data(), &head, sizeof head);
  return m + body;
}

// Reads piece by piece, so that memory is only allocated for what has been sent.
std::optional<std::string> read_text(std::size_t size, const ReadBytes& read) {
  constexpr std::size_t kPiece = std::size_t{1} << 16;
  std::string text;
  while (text.size() < size) {
    const std::size_t begin = text.size();
    text.resize(std::min(size, begin + kPiece));
    if (!read(std::as_writable_bytes(std::span(text.data() + begin, text.size() - begin)))) return {};
  }
  return text;
}

}  // namespace

std::string StoreRequest::bytes() const {
  const RequestHead head{
      .verb = static_cast<std::uint32_t>(verb),
      .patience = static_cast<std::uint32_t>(std::clamp<long long>(patience.count(), 0, kMaxPatience)),
      .key = static_cast<std::uint32_t>(key.size()),
      .value = static_cast<std::uint32_t>(value.size())};
  return message(head, key + value);
}

std::optional<StoreRequest> StoreRequest::from(const ReadBytes& read) {
  const auto head = read_head<RequestHead>(read);
  if (!head || head->key > kMaxStoreKey || head->value > kMaxStoreValue) return {};
  if (head->verb != static_cast<std::uint32_t>(Verb::set) && head->verb != static_cast<std::uint32_t>(Verb::get))
    return {};
  const bool sets = head->verb == static_cast<std::uint32_t>(Verb::set);
  const auto key = read_text(head->key, read);
  const auto value = key ? read_text(head->value, read) : std::nullopt;
  if (!value) return {};
  const auto patience = std::min<std::uint32_t>(head->patience, kMaxPatience);
  return StoreRequest{.verb = sets ? Verb::set : Verb::get,
                      .patience = std::chrono::milliseconds(patience),
                      .key = *key,
                      .value = *value};
}

std::string StoreAnswer::bytes() const {
  const AnswerHead head{.found = value ? 1U : 0U, .value = static_cast<std::uint32_t>(value ? value->size() : 0U)};
  return message(head, value.value_or(""));
}

std::optional<StoreAnswer> StoreAnswer::from(const ReadBytes& read) {
  const auto head = read_head<AnswerHead>(read);
  if (!head || head->found > 1 || head->value > kMaxStoreValue || (head->found == 0 && head->value > 0)) return {};
  auto value = read_text(head->value, read);
  if (!value) return {};
  return StoreAnswer{.value = head->found == 1 ? std::move(value) : std::nullopt};
}

}  // namespace qtrain
