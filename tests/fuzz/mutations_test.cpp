// Runs every target on damaged versions of valid files: a short, repeatable substitute for the fuzzers of the preset
// `fuzz`.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "core/os/file.h"
#include "tests/fuzz/targets.h"

namespace qtrain::fuzz {
namespace {

class Damage {
 public:
  explicit Damage(unsigned seed) : random_(seed) {}

  std::string of(std::string bytes) {
    const std::size_t changes = 1 + below(4);
    for (std::size_t i = 0; i < changes && !bytes.empty(); ++i) change(bytes);
    return bytes;
  }

 private:
  std::size_t below(std::size_t n) { return random_() % std::max<std::size_t>(n, 1); }
  /// Half of the positions are near the beginning, where binary files have their lengths.
  std::size_t place_in(const std::string& bytes) {
    return below(below(2) ? std::min<std::size_t>(bytes.size(), 64) : bytes.size());
  }

  void change(std::string& bytes) {
    const std::size_t at = place_in(bytes), length = 1 + below(std::min<std::size_t>(bytes.size() - at, 40));
    switch (below(7)) {
      case 0: bytes[at] = static_cast<char>(random_()); break;
      case 1: bytes[at] ^= static_cast<char>(1u << below(8)); break;
      case 2: bytes.erase(at, length); break;
      case 3: bytes.insert(place_in(bytes), bytes.substr(at, length)); break;
      case 4: bytes.resize(at); break;
      case 5: std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), length, '\xFF'); break;
      default: bytes.insert(at, kPieces[below(std::size(kPieces))]);
    }
  }

  static constexpr std::string_view kPieces[] = {
      "null",    "-1",       "1e999", "9223372036854775808", "[[[[[[[[", "{}",
      "\"",      "\xF0\x9F", "{{",    "{% for x in y %}",    "\\u0000",  "\n",
      "(a|b)*+", "0.5"};
  std::mt19937 random_;
};

/// Damages seeds `begin` to `end` of a target.
struct Range {
  unsigned begin, end;
};
void expect_read_or_refused(const Target& target, const Range& range) {
  for (const std::string& seed : target.seeds) {
    const std::string good = read_text(std::filesystem::path(QTRAIN_SOURCE_DIR) / seed);
    ASSERT_NO_THROW(target.run(good)) << seed;
    for (unsigned i = range.begin; i < range.end; ++i) {
      const std::string bad = Damage(i).of(good);
      EXPECT_NO_THROW(run(target, bad)) << seed << ", damage " << i;
    }
  }
}

class Damaged : public ::testing::TestWithParam<std::size_t> {};
TEST_P(Damaged, FilesAreReadOrRefused) {
  expect_read_or_refused(targets()[GetParam()], {0, 150});
}
TEST_P(Damaged, MoreFilesAreReadOrRefused) {
  const char* rounds = std::getenv("QTRAIN_FUZZ_ROUNDS");
  expect_read_or_refused(targets()[GetParam()], {150, rounds ? static_cast<unsigned>(std::atoi(rounds)) : 600});
}

INSTANTIATE_TEST_SUITE_P(All, Damaged, ::testing::Range(std::size_t{0}, targets().size()),
                         [](const auto& info) { return std::string(targets()[info.param].name); });

}  // namespace
}  // namespace qtrain::fuzz
