#include "data/source/arrow/messages.h"

#include <string>

#include "core/error.h"

namespace qtrain {
namespace {

constexpr std::string_view kArrowMagic = "ARROW1";
constexpr std::uint32_t kContinues = 0xffffffff;  // precedes each size, except in files of Arrow before 0.15

/// Parses the metadata of a message, without its size.
ArrowMessage message_of(std::string_view metadata) {
  const FlatTable table(metadata);
  const auto header = table.table(2);
  require_arrow(header.has_value(), "a message has no header");
  return {.kind = table.scalar<std::uint8_t>(1, 0), .header = *header, .body = {}};
}

/// Reads the messages of a stream one by one; in a file, the stream is between the magic number and the footer.
class MessageScan {
 public:
  explicit MessageScan(std::string_view text) : text_(text), at_(text.starts_with(kArrowMagic) ? 8 : 0) {}

  /// Returns the next message; none at the end. The end-of-stream marker may be missing.
  std::optional<ArrowMessage> next() {
    if (at_ >= text_.size()) return std::nullopt;
    require_arrow(8 <= text_.size() - at_, "it ends inside a message");
    require_arrow(number_at<std::uint32_t>(text_, at_) == kContinues,
                  "a message does not begin with the continuation marker");
    const auto size = number_at<std::uint32_t>(text_, at_ + 4);
    at_ += 8;
    if (size == 0) return std::nullopt;
    require_arrow(size <= text_.size() - at_, "it ends inside a message");
    const std::string_view metadata = text_.substr(at_, size);
    ArrowMessage message = message_of(metadata);
    at_ += size;
    const auto body = FlatTable(metadata).scalar<std::int64_t>(3, 0);
    require_arrow(body >= 0 && static_cast<std::uint64_t>(body) <= text_.size() - at_, "it ends inside a record batch");
    message.body = text_.substr(at_, static_cast<std::size_t>(body));
    at_ += message.body.size();
    return message;
  }

 private:
  std::string_view text_;
  std::size_t at_;
};

/// The footer of a file; none if the text does not end like an Arrow file.
std::optional<FlatTable> footer_of(std::string_view text) {
  constexpr std::size_t kEnd = 4 + kArrowMagic.size();
  if (!text.starts_with(kArrowMagic) || !text.ends_with(kArrowMagic) || text.size() < 8 + kEnd) return std::nullopt;
  const auto size = number_at<std::int32_t>(text, text.size() - kEnd);
  require_arrow(size > 0 && static_cast<std::size_t>(size) <= text.size() - kEnd - 8,
                "the size of its footer is invalid");
  return FlatTable(text.substr(text.size() - kEnd - static_cast<std::size_t>(size), static_cast<std::size_t>(size)));
}

/// Reads the messages that a footer points to.
class BlockReader {
 public:
  explicit BlockReader(std::string_view text) : text_(text) {}

  /// A block is a struct: offset (8 bytes), size of the metadata (4, then 4 bytes of padding), size of the body (8).
  ArrowMessage at(const FlatTable::Vector& blocks, std::uint64_t i) {
    const auto offset = blocks.scalar<std::int64_t>(i, 0), body = blocks.scalar<std::int64_t>(i, 16);
    const auto metadata = blocks.scalar<std::int32_t>(i, 8);
    const auto size = static_cast<std::int64_t>(text_.size());
    const bool inside = offset >= 0 && metadata >= 8 && body >= 0 && offset <= size && metadata <= size - offset &&
                        body <= size - offset - metadata;
    require_arrow(inside, "its footer points outside the file");
    bodies_ += static_cast<std::uint64_t>(body);
    require_arrow(bodies_ <= text_.size(), "its footer refers to the same bytes twice");
    std::string_view head = text_.substr(static_cast<std::size_t>(offset), static_cast<std::size_t>(metadata));
    head.remove_prefix(number_at<std::uint32_t>(head, 0) == kContinues ? 8 : 4);
    ArrowMessage message = message_of(head);
    message.body = text_.substr(static_cast<std::size_t>(offset + metadata), static_cast<std::size_t>(body));
    return message;
  }

 private:
  std::string_view text_;
  std::uint64_t bodies_ = 0;
};

ArrowMessages by_footer(std::string_view text, const FlatTable& footer) {
  constexpr std::size_t kBlock = 24;
  const auto schema = footer.table(1);
  require_arrow(schema.has_value(), "its footer has no schema");
  ArrowMessages out{.schema = *schema, .rest = {}, .has_footer = true};
  BlockReader reader(text);
  for (const int member : {2, 3}) {  // dictionaries, record batches
    const FlatTable::Vector blocks = footer.vector(member, kBlock);
    for (std::uint64_t i = 0; i < blocks.size(); ++i) out.rest.push_back(reader.at(blocks, i));
  }
  return out;
}

}  // namespace

void require_arrow(bool fine, const char* why) {
  if (!fine)
    fail(ErrorKind::input, {.cause = std::string("damaged Arrow file: ") + why,
                            .remedy = "Write it again; a copy may have been cut short."});
}

ArrowMessages read_arrow_messages(std::string_view text) {
  if (const auto footer = footer_of(text)) return by_footer(text, *footer);
  MessageScan scan(text);
  const auto schema = scan.next();
  require_arrow(schema && schema->kind == kSchemaMessage, "it does not begin with a schema");
  ArrowMessages out{.schema = schema->header, .rest = {}};
  while (auto message = scan.next()) out.rest.push_back(std::move(*message));
  return out;
}

}  // namespace qtrain
