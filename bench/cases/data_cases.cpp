#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <memory>

#include "bench/cases/cases.h"
#include "core/formats/json.h"
#include "core/os/file.h"
#include "core/rng.h"
#include "data/packing.h"
#include "data/source/row_source.h"
#include "text/tokenizer/load.h"
#include "text/tokenizer/tokenizer.h"

namespace qtrain::bench {
namespace {

namespace fs = std::filesystem;

/// A temporary folder that exists as long as this object.
class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / "qtrain_bench_XXXXXX") {
    std::string name = path_.string();
    check(::mkdtemp(name.data()) != nullptr, "no temporary folder");
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  fs::path operator/(const char* name) const { return path_ / name; }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::vector<std::string> syllables() {
  std::vector<std::string> all;
  for (const char c : std::string_view("bcdfghklmnprstvz"))
    for (const char v : std::string_view("aeiou")) all.push_back({c, v});
  return all;
}

/// Random numbers below `limit`, the same in every run.
class Draws {
 public:
  explicit Draws(std::uint32_t seed) : seed_(seed) {}
  std::size_t below(std::size_t limit) { return philox(seed_, 0, next_++)[0] % limit; }

 private:
  std::uint32_t seed_;
  std::uint64_t next_ = 0;
};

/// Text of words made of syllables, some of them frequent, with numbers, punctuation and some non-ASCII letters.
std::string text_of(Draws& draws, std::size_t words) {
  static const std::vector<std::string> kParts = syllables();
  std::string text;
  for (std::size_t i = 0; i < words; ++i) {
    if (i > 0) text += ' ';
    const std::size_t kind = draws.below(20), count = 1 + draws.below(4);
    if (kind == 0) {
      text += std::to_string(draws.below(100'000));
    } else if (kind == 1) {
      text += "\u00e9t\u00e9";
    } else {
      for (std::size_t k = 0; k < count; ++k) text += kParts[draws.below(kind < 10 ? 8 : kParts.size())];
    }
    if (draws.below(8) == 0) text += ".\n"[draws.below(2)];
  }
  return text;
}

/// The 256 characters that stand for bytes in byte-level BPE.
std::vector<std::string> byte_characters() {
  std::vector<std::string> all;
  int other = 256;
  for (int b = 0; b < 256; ++b) {
    const bool visible = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    const int c = visible ? b : other++;
    all.push_back(c < 0x80 ? std::string(1, static_cast<char>(c))
                           : std::string{static_cast<char>(0xC0 | (c >> 6)), static_cast<char>(0x80 | (c & 0x3F))});
  }
  return all;
}

/// Byte-level BPE as in GPT-2, with tokens for each syllable, each pair of syllables, and both after a space.
Json tokenizer_json() {
  static const std::string kSpace = "\u0120";
  Json vocabulary = Json::object(), merges = Json::array();
  const auto add = [&](const std::string& token) { vocabulary.emplace(token, vocabulary.size()); };
  const auto merge = [&](const std::string& a, const std::string& b) {
    merges.push_back(a + " " + b);
    add(a + b);
  };
  for (const std::string& c : byte_characters()) add(c);
  const std::vector<std::string> parts = syllables();
  for (const std::string& p : parts) merge(p.substr(0, 1), p.substr(1));
  for (const std::string& p : parts) merge(kSpace, p);
  for (const std::string& a : parts)
    for (const std::string& b : parts) merge(a, b);
  for (const std::string& a : parts)
    for (const std::string& b : parts) merge(kSpace + a, b);
  return {{"version", "1.0"},
          {"added_tokens", Json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", std::move(vocabulary)}, {"merges", std::move(merges)}}}};
}

std::shared_ptr<const Tokenizer> made_tokenizer() {
  const Folder folder;
  write_file(folder / "tokenizer.json", dump_json(tokenizer_json()));
  return load_tokenizer(folder.path());
}

constexpr std::size_t kWordsOfRow = 60;

std::vector<std::string> texts_of(std::int64_t rows, std::uint32_t seed) {
  Draws draws(seed);
  std::vector<std::string> texts;
  for (std::int64_t i = 0; i < rows; ++i) texts.push_back(text_of(draws, kWordsOfRow));
  return texts;
}
std::string jsonl_of(std::int64_t rows) {
  std::string lines;
  for (const std::string& text : texts_of(rows, 1)) {
    const std::size_t half = text.find(' ', text.size() / 2);
    const Json row{{"messages",
                    {{{"role", "user"}, {"content", text.substr(0, half)}},
                     {{"role", "assistant"}, {"content", text.substr(half)}}}}};
    lines += dump_json(row) + "\n";
  }
  return lines;
}

/// Each run tokenizes different texts than the previous one: as in a data set, the tokenizer has cached some of the
/// words.
Run tokenize(std::int64_t rows) {
  constexpr std::uint32_t kSets = 4;
  std::vector<std::vector<std::string>> sets;
  for (std::uint32_t seed = 1; seed <= kSets; ++seed) sets.push_back(texts_of(rows, seed));
  return [tokenizer = made_tokenizer(), sets = std::move(sets), at = std::size_t{0}](
             Ctx&, std::span<const Argument>) mutable {
    const std::vector<std::string>& texts = sets[at++ % kSets];
    std::size_t tokens = 0;
    for (const std::string& text : texts) tokens += tokenizer->encode(text).size();
    check(tokens > texts.size(), "a text gives tokens");
  };
}

Run read_rows(std::int64_t rows) {
  auto folder = std::make_shared<Folder>();
  write_file(*folder / "rows.jsonl", jsonl_of(rows));
  return [folder, rows](Ctx&, std::span<const Argument>) {
    const RowSourcePtr source = open_rows(*folder / "rows.jsonl");
    check(source->size() == rows, "every line is a row");
    for (std::int64_t i = 0; i < rows; ++i) check(source->parse(i).contains("messages"), "a row has messages");
  };
}

Run pack_rows(Packing packing, std::int64_t rows) {
  constexpr std::int64_t kRow = 2048;
  Draws draws(2);
  std::vector<std::int32_t> lengths(static_cast<std::size_t>(rows));
  for (std::int32_t& l : lengths) l = 1 + static_cast<std::int32_t>(draws.below(kRow));
  return [packing, lengths = std::move(lengths)](Ctx&, std::span<const Argument>) {
    check(pack(packing, lengths, kRow).size() > 0, "documents fill rows");
  };
}

}  // namespace

void add_data(std::vector<Case>& cases, const Sizes& s) {
  const std::int64_t rows = s.text_rows, documents = 10 * rows;
  if (rows == 0) return;
  double text = 0;
  for (const std::string& t : texts_of(rows, 1)) text += static_cast<double>(t.size());
  cases.push_back({.name = fmt::format("read_jsonl/{}", rows),
                   .prepare = [rows] { return read_rows(rows); },
                   .text_bytes = static_cast<double>(jsonl_of(rows).size())});
  cases.push_back(
      {.name = fmt::format("tokenize/{}", rows), .prepare = [rows] { return tokenize(rows); }, .text_bytes = text});
  cases.push_back({.name = fmt::format("pack/{}", documents),
                   .prepare = [documents] { return pack_rows(Packing::bfd, documents); }});
}

}  // namespace qtrain::bench
