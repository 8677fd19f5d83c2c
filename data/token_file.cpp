#include "data/token_file.h"

#include <cstring>
#include <string_view>
#include <utility>

#include "core/formats/json_view.h"
#include "core/idx.h"
#include "core/os/file.h"

namespace qtrain {
namespace {

constexpr std::uint64_t kFormat = 0x33306e656b6f7471;  // "qtoken03"
constexpr std::size_t kAlign = 8;
constexpr std::size_t kSpoolMemory = std::size_t{8} << 20;
constexpr std::uint64_t kReadAtOpening = std::uint64_t{256} << 20;  // bytes of tokens to verify, which takes at most
                                                                    // 0.1 s

/// The last bytes of a file. Sections are in this order, each padded to a multiple of 8.
struct Footer {
  std::uint64_t format = kFormat;
  Digest key;
  std::uint64_t tokens = 0, rows = 0, documents = 0, lengths = 0, text_bytes = 0;  // text: the statistics
  std::uint64_t fingerprint = 0;
  Digest ids;    // of the tokens
  Digest index;  // of all other sections
  Digest self;   // of the footer up to here
};
static_assert(sizeof(Footer) == 15 * 8);

std::span<const std::byte> as_bytes(const Footer& footer) {
  return std::as_bytes(std::span(&footer, 1));
}

Digest self_of(const Footer& footer) {
  Hasher hasher;
  hasher.add(as_bytes(footer).first(sizeof footer - sizeof footer.self));
  return hasher.digest();
}

Json left_out_json(const LeftOutRows& rows) {
  return {rows.count, rows.place, rows.reason};
}

LeftOutRows left_out_from(const Json& json) {
  return {.count = json.at(0), .place = json.at(1), .reason = json.at(2)};
}

Json ends_json(const std::vector<AnswerEnd>& ends) {
  Json all = Json::array();
  for (const AnswerEnd& end : ends) all.push_back({end.token, end.rows, end.text, end.special});
  return all;
}

std::vector<AnswerEnd> ends_from(const Json& json) {
  std::vector<AnswerEnd> ends;
  for (const Json& end : json)
    ends.push_back({.token = end.at(0), .rows = end.at(1), .text = end.at(2), .special = end.at(3)});
  return ends;
}

Json statistics_json(const DatasetStatistics& s) {
  Json truncated = Json::array();
  for (const TruncatedRow& row : s.first_truncated) truncated.push_back({row.place, row.length});
  return {{"source_rows", s.source_rows},
          {"target_tokens", s.target_tokens},
          {"longest", s.longest},
          {"truncated_rows", s.truncated_rows},
          {"truncated_tokens", s.truncated_tokens},
          {"dropped_rows", s.dropped_rows},
          {"unplaced", left_out_json(s.unplaced)},
          {"unanswered", left_out_json(s.unanswered)},
          {"broken", left_out_json(s.broken)},
          {"too_long", left_out_json(s.too_long)},
          {"unprinted", left_out_json(s.unprinted)},
          {"joined_pairs", s.joined_pairs},
          {"first_prompts", s.first_prompts},
          {"untargeted_rows", s.untargeted_rows},
          {"prompt_mismatches", s.prompt_mismatches},
          {"max_token_id", s.max_token_id},
          {"answer_ends", ends_json(s.answer_ends)},
          {"first_truncated", truncated}};
}

DatasetStatistics statistics_from(const Json& json) {
  DatasetStatistics s{.source_rows = json.at("source_rows"),
                      .target_tokens = json.at("target_tokens"),
                      .truncated_rows = json.at("truncated_rows"),
                      .truncated_tokens = json.at("truncated_tokens"),
                      .dropped_rows = json.at("dropped_rows"),
                      .unplaced = left_out_from(json.at("unplaced")),
                      .unanswered = left_out_from(json.at("unanswered")),
                      .broken = left_out_from(json.at("broken")),
                      .too_long = left_out_from(json.at("too_long")),
                      .unprinted = left_out_from(json.at("unprinted")),
                      .joined_pairs = json.at("joined_pairs"),
                      .untargeted_rows = json.at("untargeted_rows"),
                      .prompt_mismatches = json.at("prompt_mismatches"),
                      .max_token_id = json.at("max_token_id")};
  s.longest = json.at("longest");
  s.first_prompts = json.value("first_prompts", std::int64_t{0});
  s.answer_ends = ends_from(json.at("answer_ends"));
  for (const Json& row : json.at("first_truncated")) s.first_truncated.push_back({row.at(0), row.at(1)});
  return s;
}

/// Appends padded sections and computes their checksum.
class SectionWriter {
 public:
  using Append = std::function<void(std::span<const std::byte>)>;
  explicit SectionWriter(const Append& append) : append_(append) {}

  template <class T>
  void add(std::span<const T> values) {
    put(std::as_bytes(values));
    constexpr std::byte kZeros[kAlign] = {};
    put(std::span(kZeros).first((kAlign - values.size_bytes() % kAlign) % kAlign));
  }
  Digest digest() const { return hasher_.digest(); }

 private:
  void put(std::span<const std::byte> bytes) {
    hasher_.add(bytes);
    append_(bytes);
  }
  const Append& append_;
  Hasher hasher_;
};

/// Reads sections from the front of bytes whose size was checked before.
class SectionReader {
 public:
  explicit SectionReader(std::span<const std::byte> bytes) : left_(bytes) {}
  template <class T>
  std::span<const T> take(std::uint64_t count) {
    const std::size_t size = count * sizeof(T);
    const std::span<const T> values(reinterpret_cast<const T*>(left_.data()), count);
    left_ = left_.subspan((size + kAlign - 1) / kAlign * kAlign);
    return values;
  }

 private:
  std::span<const std::byte> left_;
};

[[noreturn]] void fail_damaged(const std::filesystem::path& file, const char* what) {
  fail(ErrorKind::input, {.cause = std::string("damaged: ") + what, .place = file.string()});
}

std::uint64_t filled(std::uint64_t size) {
  return (size + kAlign - 1) / kAlign * kAlign;
}

/// Bytes of the sections after the tokens. Counts are at most the size of the file.
std::uint64_t index_bytes(const Footer& f) {
  return 2 * 8 * (f.rows + 1) + filled(4 * f.rows) + filled(4 * f.documents) + filled(4 * f.lengths) +
         filled(f.text_bytes);
}

Footer read_footer(const std::filesystem::path& file, std::span<const std::byte> bytes, const Digest& key) {
  Footer footer;
  if (bytes.size() < sizeof footer) fail_damaged(file, "cut short");
  std::memcpy(&footer, bytes.data() + bytes.size() - sizeof footer, sizeof footer);
  if (footer.format != kFormat || !(footer.self == self_of(footer))) fail_damaged(file, "the footer is invalid");
  if (!(footer.key == key)) fail_damaged(file, "it contains other rows than its name says");
  for (const std::uint64_t n : {footer.tokens, footer.rows, footer.documents, footer.lengths, footer.text_bytes})
    if (n > bytes.size()) fail_damaged(file, "impossible counts");
  if (8 * footer.tokens + index_bytes(footer) + sizeof footer != bytes.size()) fail_damaged(file, "cut short");
  return footer;
}

/// Whether offsets start at 0, never decrease, and end at `end`.
bool are_offsets(std::span<const std::int64_t> offsets, std::uint64_t end) {
  for (std::size_t i = 1; i < offsets.size(); ++i)
    if (offsets[i] < offsets[i - 1]) return false;
  return offsets.front() == 0 && static_cast<std::uint64_t>(offsets.back()) == end;
}

}  // namespace

void write_token_file(const std::filesystem::path& file, const Digest& key,
                      const std::function<void(DatasetBuilder&)>& build) {
  write_file(file, [&](const std::function<void(std::span<const std::byte>)>& append) {
    Hasher tokens;
    const auto append_tokens = [&](std::span<const std::byte> bytes) {
      tokens.add(bytes);
      append(bytes);
    };
    DatasetBuilder builder(append_tokens, {.folder = file.parent_path(), .memory = kSpoolMemory});
    build(builder);
    const DatasetLayout rows = builder.layout();
    const DatasetStatistics& statistics = builder.statistics();
    Json described = statistics_json(statistics);
    described["sha256"] = builder.sha256();
    const std::string text = dump_json(described);
    SectionWriter index(append);
    index.add(rows.row_offsets);
    index.add(rows.document_offsets);
    builder.release();
    index.add(rows.targets);
    index.add(rows.document_starts);
    builder.release();
    index.add(std::span<const std::int32_t>(statistics.lengths));
    index.add(std::span<const char>(text));
    Footer footer{.key = key,
                  .tokens = static_cast<std::uint64_t>(statistics.tokens),
                  .rows = rows.targets.size(),
                  .documents = rows.document_starts.size(),
                  .lengths = statistics.lengths.size(),
                  .text_bytes = text.size(),
                  .fingerprint = builder.fingerprint(),
                  .ids = tokens.digest(),
                  .index = index.digest()};
    footer.self = self_of(footer);
    append(as_bytes(footer));
  });
}

std::optional<Dataset> open_token_file(const std::filesystem::path& file, const Digest& key) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return {};
  const auto mapped = std::make_shared<const MappedFile>(file);
  const std::span<const std::byte> bytes = mapped->bytes();
  const Footer footer = read_footer(file, bytes, key);
  const std::uint64_t token_bytes = 8 * footer.tokens;
  const auto digest_is = [&](std::span<const std::byte> part, const Digest& digest) {
    Hasher hasher;
    hasher.add(part);
    return hasher.digest() == digest;
  };
  if (!digest_is(bytes.subspan(token_bytes, index_bytes(footer)), footer.index))
    fail_damaged(file, "the checksum of the index does not match");
  if (token_bytes <= kReadAtOpening && !digest_is(bytes.first(token_bytes), footer.ids))
    fail_damaged(file, "the checksum of the tokens does not match");

  SectionReader sections(bytes);
  DatasetLayout rows;
  rows.tokens = sections.take<std::int32_t>(2 * footer.tokens);
  rows.row_offsets = sections.take<std::int64_t>(footer.rows + 1);
  rows.document_offsets = sections.take<std::int64_t>(footer.rows + 1);
  rows.targets = sections.take<std::int32_t>(footer.rows);
  rows.document_starts = sections.take<std::int32_t>(footer.documents);
  if (!are_offsets(rows.row_offsets, footer.tokens) || !are_offsets(rows.document_offsets, footer.documents))
    fail_damaged(file, "impossible offsets");
  const auto lengths = sections.take<std::int32_t>(footer.lengths);
  const auto text = sections.take<char>(footer.text_bytes);

  Dataset dataset(rows, mapped);
  dataset.set_fingerprint(footer.fingerprint);
  DatasetStatistics& s = dataset.statistics();
  reading(file, [&] {
    const Json described = parse_json({text.data(), text.size()}, file.string());
    dataset.set_sha256(described.at("sha256"));
    s = statistics_from(described);
  });
  s.rows = dataset.size();
  s.tokens = static_cast<std::int64_t>(footer.tokens);
  s.documents = static_cast<std::int64_t>(footer.documents);
  s.lengths.assign(lengths.begin(), lengths.end());
  mapped->release(bytes.subspan(8 * footer.tokens));  // runs may never read most of it
  return dataset;
}

}  // namespace qtrain
