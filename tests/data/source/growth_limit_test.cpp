// Files of rows that are made to take a disproportionate amount of memory or time.
#include <gmock/gmock.h>
#include <zlib.h>
#include <zstd.h>

#include <ctime>

#include "core/build.h"
#include "core/formats/json_object.h"
#include "core/os/stop.h"
#include "data/source/growth_limit.h"
#include "data/source/raw_rows.h"
#include "tests/data/support.h"

namespace qtrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::string row_of(std::size_t size) {
  return R"({"text": ")" + std::string(size, 'a') + "\"}\n";
}

std::string gzipped(std::string_view text) {
  z_stream z{};
  deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&z, text.size()) + 64, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  deflate(&z, Z_FINISH);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

std::string zstd_compressed(std::string_view text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

class HostileRows : public test::DataFolder {
 protected:
  /// The error from reading all rows of the file.
  static std::string refusal(const std::filesystem::path& path) {
    return test::error_of(ErrorKind::input, [&] {
      const RawRows rows({path});
      for (std::int64_t i = 0; i < rows.size(); ++i) rows.parse(i);
    });
  }
};

TEST_F(HostileRows, CompressedFilesThatBecomeTooMuchAreRefusedByNameAndLimit) {
  const std::string large = row_of(300 * kMiB);
  const std::filesystem::path growth = test::golden_folder() / "growth";
  struct Case {
    std::string path, remedy;
  };
  const Case cases[] = {{write("a.jsonl.gz", gzipped(large)), "gzip -d"},
                        {write("a.jsonl.zst", zstd_compressed(large)), "zstd -d"},
                        {write("members.csv.gz", gzipped("a,b\n") + gzipped(large)), "gzip -d"},
                        {growth / "page.parquet", "row_group_size"},
                        {growth / "dictionary_page.parquet", "row_group_size"},
                        {growth / "columns.parquet", "row_group_size"},
                        {growth / "buffer.arrow", "smaller record batches"},
                        {growth / "dictionary.arrow", "smaller record batches"}};
  for (const Case& c : cases)
    EXPECT_THAT(refusal(c.path), AllOf(HasSubstr(c.path), HasSubstr("256 MiB"), HasSubstr(c.remedy)));
}

TEST_F(HostileRows, FilesWhoseRowsTogetherBecomeTooMuchAreRefused) {
  struct Case {
    const char *name, *cause;
  };
  constexpr const char *kTooMuch = "would be decoded to more than 268435456",
                       *kTooLong = "would be decoded to more than 8589934592";
  const Case cases[] = {{"row_groups.parquet", kTooMuch},
                        {"dictionary_uses.parquet", kTooLong},
                        {"dictionary_uses.arrow", kTooLong},
                        {"dictionary_of_lists.arrow", kTooLong},
                        {"views.arrow", kTooLong},
                        {"uses_in_one_row.parquet", kTooMuch},
                        {"uses_in_one_row.arrow", kTooMuch},
                        {"overlaps.arrow", "its offsets decrease"},
                        {"overlapping_lists.arrow", "its offsets decrease"},
                        {"many_rows.parquet", "it has more than 16777216 rows, too many for its size"}};
  for (const Case& c : cases) {
    const std::filesystem::path path = test::golden_folder() / "growth" / c.name;
    EXPECT_THAT(refusal(path), AllOf(HasSubstr(path.string()), HasSubstr(c.cause)));
  }
}

// The rows of 400 MB are read one at a time.
TEST_F(HostileRows, OrdinaryRowsThatShareAPromptAreRead) {
  for (const char* name : {"shared_prompt.parquet", "shared_prompt.arrow"}) {
    SCOPED_TRACE(name);
    const RawRows rows({test::golden_folder() / "growth" / name});
    ASSERT_EQ(rows.size(), 50'000);
    std::uint64_t bytes = 0;
    for (std::int64_t i = 0; i < rows.size(); ++i)
      bytes += rows.parse(i).at("system").get_ref<const std::string&>().size();
    EXPECT_EQ(bytes, std::uint64_t{50'000} * 480 * 17);
  }
}

// Batches that are no longer in memory are decoded again, but counted once.
TEST_F(HostileRows, ReadingRowsAgainIsNotRefused) {
  const RawRows rows({test::golden_folder() / "growth/row_groups.parquet"});
  for (const std::int64_t row : {0, 1, 0, 1, 0, 1})
    EXPECT_EQ(rows.parse(row).at("text").get_ref<const std::string&>().size(), 90 * kMiB);
}

TEST_F(HostileRows, CompressedFilesBelowTheLimitAreRead) {
  const std::string text = row_of(60 * kMiB);  // more than is kept in memory
  for (const std::string& path : {write("a.jsonl.gz", gzipped(text)), write("a.jsonl.zst", zstd_compressed(text))}) {
    const RawRows rows({path});
    ASSERT_EQ(rows.size(), 1);
    EXPECT_EQ(rows.parse(0).at("text").get_ref<const std::string&>().size(), 60 * kMiB);
  }
}

TEST(GrowthLimits, ManyBytesMayBecomeMany) {
  GrowthLimit few(10, "split it"), many(std::uint64_t{4} << 20, "split it");
  few.add(GrowthLimit::kFreeBytes);
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { few.add(1); }), HasSubstr("split it"));
  many.add(std::uint64_t{1} << 30);
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { many.add(1); }), HasSubstr("4194304 bytes"));
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { many.add(~std::uint64_t{0}); }), HasSubstr("4194304 bytes"));
}

std::string repeated(std::string_view text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

std::string numbered(const char* before, int count, const char* after) {
  std::string all;
  for (int i = 0; i < count; ++i) all += before + std::to_string(i) + (i + 1 < count ? after : "");
  return all;
}

/// Each takes a fraction of a second if time is linear in the size of the file, and minutes if it is quadratic.
TEST_F(HostileRows, TimeGrowsWithTheFileNotWithItsSquare) {
  constexpr int kMany = 200'000;
  constexpr std::clock_t kSeconds = kAddressSanitizer || kThreadSanitizer ? 60 : 5;
  struct Case {
    const char* name;
    std::string text;
  };
  const Case cases[] = {{"columns.csv", numbered("column", kMany, ",") + "\n" + numbered("", kMany, ",") + "\n"},
                        {"one_name.csv", repeated("a,", kMany) + "b\n1\n"},
                        {"suffixes.csv", numbered("a.", kMany, ",") + "," + repeated("a,", kMany) + "b\n1\n"},
                        {"no_names.csv", repeated(",", kMany) + "\n1\n"},
                        {"quotes.csv", "a,b\n\"" + repeated("\"\"", kMany) + "\",2\n"},
                        {"quoted_lines.csv", "a\n" + repeated("\"x\ny\"\n", kMany)},
                        {"blank_lines.csv", "a\n" + repeated(" \t \n", kMany) + "1\n"},
                        {"long_line.csv", "a\n" + std::string(20 * kMiB, 'x') + "\n"},
                        {"columns.tsv", numbered("column", kMany, "\t") + "\n1\n"},
                        {"keys.jsonl", "{" + numbered("\"k", kMany, "\": 1, ") + "\": 1}\n"},
                        {"array.json", "[" + repeated("{\"text\": \"a\"}, ", kMany) + "{\"text\": \"a\"}]"},
                        {"lines.txt", repeated("\r", kMany) + "a"}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const std::clock_t start = std::clock();
    const RawRows rows({write(c.name, c.text)});
    const RawRows named = rows.with_columns({.columns = {{"text", "column7"}}, .texts = {}, .message_keys = {}});
    for (std::int64_t i = 0; i < std::min<std::int64_t>(rows.size(), 3); ++i) named.parse(i);
    EXPECT_LT(std::clock() - start, kSeconds * CLOCKS_PER_SEC);
  }
}

TEST_F(HostileRows, ShortRowsBelowALongHeaderAreRefused) {
  const std::string path = write("a.csv", numbered("c", 20'000, ",") + "\n" + repeated("1\n", 200'000));
  EXPECT_THAT(refusal(path), AllOf(HasSubstr(path), HasSubstr("200000 rows of 20000 columns"), HasSubstr("header")));
  const RawRows few({write("b.csv", "a,b,c\n" + repeated("1\n", 1000))});
  EXPECT_EQ(dump_json(few.parse(7)), R"({"a": "1", "b": null, "c": null})");
}

TEST_F(HostileRows, AStopEndsTheReadingOfAFile) {
  const std::string text = repeated("{\"text\": \"a\"}\n", 10);
  const std::string paths[] = {
      write("a.jsonl", text),   write("a.jsonl.gz", gzipped(text)), write("a.jsonl.zst", zstd_compressed(text)),
      write("a.csv", "a\n1\n"), write("a.txt", "a\nb\n"),           write("a.json", "[{\"text\": \"a\"}]")};
  set_stop_requested(true);
  for (const std::string& path : paths)
    EXPECT_THAT(test::error_of(ErrorKind::stopped, [&] { const RawRows rows({path}); }), HasSubstr("stopped")) << path;
  set_stop_requested(false);
  for (const std::string& path : paths) EXPECT_GT(RawRows({path}).size(), 0);
}

TEST(JsonObjects, HaveTheFirstPlaceAndTheLastValueOfAName) {
  for (const int others : {0, 5, 30}) {
    JsonObject object;
    Json expected = Json::object();
    const auto add = [&](const std::string& key, const Json& value) {
      object.add(key, value);
      expected[key] = value;
    };
    add("a", 1);
    for (int i = 0; i < others; ++i) add("k" + std::to_string(i * 7 % 31), i);
    add("b", 2);
    add("a", 3);
    add("b", 4);
    EXPECT_EQ(dump_json(object.take()), dump_json(expected));
  }
  EXPECT_EQ(dump_json(JsonObject().take()), "{}");
}

}  // namespace
}  // namespace qtrain
