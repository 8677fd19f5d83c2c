#include "core/os/spool.h"

#include <gmock/gmock.h>

#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/hash.h"
#include "tests/errors.h"

namespace qtrain {
namespace {

using ::testing::IsEmpty;

std::vector<std::int64_t> ascending(std::int64_t n) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

std::vector<std::int64_t> contents(NumberSpool<std::int64_t>& spool) {
  const auto values = spool.values();
  return {values.begin(), values.end()};
}

TEST(Spool, GivesBackWhatWasAppendedInMemoryAndThroughAFile) {
  const std::vector<std::int64_t> expected = ascending(400'000);  // more than is written at once
  const std::filesystem::path folder = std::filesystem::temp_directory_path();
  for (const SpoolOptions& options : {SpoolOptions{}, SpoolOptions{.folder = folder, .memory = 1000}}) {
    NumberSpool<std::int64_t> spool(options);
    for (const std::int64_t value : expected) spool.push(value);
    EXPECT_EQ(spool.size(), 400'000);
    EXPECT_EQ(contents(spool), expected);
    spool.release();
    EXPECT_EQ(contents(spool), expected) << "released pages are read again";
    NumberSpool<std::int64_t> moved(std::move(spool));
    EXPECT_EQ(contents(moved), expected);
    moved.clear();
    EXPECT_THAT(contents(moved), IsEmpty());
    moved.push(7);
    EXPECT_EQ(contents(moved), (std::vector<std::int64_t>{7}));
  }
}

TEST(Spool, SaysWhereItCannotWrite) {
  Spool spool({.folder = "/nonexistent/folder", .memory = 0});
  EXPECT_THAT(test::error_of(ErrorKind::disk, [&] { spool.append(std::as_bytes(std::span("text"))); }),
              ::testing::HasSubstr("/nonexistent/folder"));
}

std::string letters(std::size_t n) {
  std::string text(n, ' ');
  for (std::size_t i = 0; i < n; ++i) text[i] = static_cast<char>('a' + i * i % 23);
  return text;
}

TEST(Hasher, DoesNotDependOnHowContentsAreCut) {
  const std::string text = letters(1000);
  for (const std::size_t cut : {0u, 1u, 63u, 64u, 65u, 500u, 999u, 1000u}) {
    Hasher hasher;
    hasher.add(std::string_view(text).substr(0, cut));
    hasher.add(std::string_view(text).substr(cut));
    EXPECT_EQ(hasher.digest(), digest_of(text)) << cut;
  }
}

TEST(Hasher, SeesEveryBitAndTheLength) {
  for (const std::size_t size : {1u, 16u, 64u, 100u, 128u}) {
    const std::string text = letters(size);
    const Digest digest = digest_of(text);
    EXPECT_NE(digest, digest_of(text + '\0')) << size;
    for (std::size_t bit = 0; bit < 8 * size; ++bit) {
      std::string other = text;
      other[bit / 8] = static_cast<char>(other[bit / 8] ^ (1 << bit % 8));
      const Digest changed = digest_of(other);
      EXPECT_NE(changed.high, digest.high) << size << " bit " << bit;
      EXPECT_NE(changed.low, digest.low) << size << " bit " << bit;
    }
  }
  EXPECT_EQ(digest_of("x").hex().size(), 32u);
}

}  // namespace
}  // namespace qtrain
