#include "data/source/arrow/flatbuffer.h"

#include "core/error.h"

namespace qtrain {
namespace {

void require_flat(bool fine) {
  if (!fine) fail(ErrorKind::input, {.cause = "damaged Arrow metadata: an offset points outside it"});
}

/// Follows the unsigned offset stored at `at`, which is relative to `at`.
std::uint64_t follow(std::string_view buffer, std::uint64_t at) {
  require_flat(at + 4 <= buffer.size());
  const std::uint64_t target = at + number_at<std::uint32_t>(buffer, at);
  require_flat(target < buffer.size());
  return target;
}

}  // namespace

FlatTable::FlatTable(std::string_view buffer) : FlatTable(buffer, follow(buffer, 0)) {}

FlatTable::FlatTable(std::string_view buffer, std::uint64_t at) : buffer_(buffer), at_(at) {
  require_flat(at + 4 <= buffer.size());
  const std::int64_t vtable = static_cast<std::int64_t>(at) - number_at<std::int32_t>(buffer, at);
  require_flat(vtable >= 0 && static_cast<std::uint64_t>(vtable) + 4 <= buffer.size());
  vtable_ = static_cast<std::uint64_t>(vtable);
  vtable_size_ = number_at<std::uint16_t>(buffer, vtable_);
  require_flat(vtable_size_ >= 4 && vtable_ + vtable_size_ <= buffer.size());
}

std::uint64_t FlatTable::place_of(int member, std::size_t size) const {
  const std::uint64_t entry = 4 + 2 * static_cast<std::uint64_t>(member);
  if (entry + 2 > vtable_size_) return 0;
  const std::uint16_t offset = number_at<std::uint16_t>(buffer_, vtable_ + entry);
  if (offset == 0) return 0;
  require_flat(at_ + offset + size <= buffer_.size());
  return at_ + offset;
}

std::uint64_t FlatTable::target_of(int member) const {
  const std::uint64_t at = place_of(member, 4);
  return at == 0 ? 0 : follow(buffer_, at);
}

std::optional<FlatTable> FlatTable::table(int member) const {
  const std::uint64_t at = target_of(member);
  if (at == 0) return std::nullopt;
  return FlatTable(buffer_, at);
}

FlatTable::Vector FlatTable::vector(int member, std::size_t element_size) const {
  Vector out;
  const std::uint64_t at = target_of(member);
  if (at == 0) return out;
  require_flat(at + 4 <= buffer_.size());
  out.buffer_ = buffer_;
  out.at_ = at + 4;
  out.size_ = number_at<std::uint32_t>(buffer_, at);
  out.element_size_ = element_size;
  require_flat(out.size_ <= (buffer_.size() - out.at_) / element_size);
  return out;
}

std::string_view FlatTable::text(int member) const {
  const Vector bytes = vector(member, 1);
  return bytes.size_ == 0 ? std::string_view() : buffer_.substr(bytes.at_, bytes.size_);
}

void FlatTable::Vector::require_element(std::uint64_t i, std::size_t size) const {
  require_flat(i < size_ && size <= element_size_);
}

FlatTable FlatTable::Vector::table(std::uint64_t i) const {
  require_element(i, 4);
  return {buffer_, follow(buffer_, at_ + i * 4)};
}

}  // namespace qtrain
