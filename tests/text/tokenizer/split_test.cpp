#include "text/tokenizer/split.h"

#include <gtest/gtest.h>

#include "core/rng.h"
#include "text/tokenizer/unicode.h"

namespace qtrain {
namespace {

using Matches = std::vector<std::pair<std::size_t, std::size_t>>;

/// A known expression with its scanner, and with PCRE2.
struct Twins {
  explicit Twins(const std::string& pattern) : scanner(find_scanner(pattern)), regex(pattern) {}
  Matches scanned(std::string_view text) const {
    Matches found;
    scanner(text, [&](std::size_t begin, std::size_t end) { found.emplace_back(begin, end); });
    return found;
  }
  Matches matched(std::string_view text) const {
    Matches found;
    regex.each_match(text, [&](std::size_t begin, std::size_t end) { found.emplace_back(begin, end); });
    return found;
  }

  Finder scanner;
  Regex regex;
};

class KnownExpressions : public ::testing::TestWithParam<const char*> {};

TEST_P(KnownExpressions, MatchAsPcre2DoesAroundEveryCharacter) {
  const Twins twins(GetParam());
  ASSERT_TRUE(twins.scanner);
  for (const std::string_view frame : {"a1 |", "' 'x", "1| s"}) {
    std::string text;
    for (char32_t c = 1; c < 0x110000; c += c < 0x3100 || (c > 0xA000 && c < 0xAC00) ? 1 : 7) {
      if (c >= 0xD800 && c < 0xE000) continue;
      for (const char f : frame) {
        text += f;
        append_utf8(text, c);
      }
    }
    EXPECT_EQ(twins.scanned(text), twins.matched(text)) << frame;
  }
}

TEST_P(KnownExpressions, MatchAsPcre2DoesOnRandomTexts) {
  const Twins twins(GetParam());
  constexpr std::string_view kParts[] = {"a", "B",      "é", "中",     " ",      " ",  "\n",  "\r",  "\t",
                                         "1", "²",      "٣", "'",      "'s",     "'S", "'re", "'LL", "'\u017F",
                                         "!", "\u3000", "😀", "\u0301", "\u0085", "  ", "_",   "ve"};
  for (std::uint64_t t = 0; t < 3000; ++t) {
    std::string text;
    for (std::uint64_t i = 0; i < 1 + t % 24; ++i) text += kParts[philox(7, t, i)[0] % std::size(kParts)];
    EXPECT_EQ(twins.scanned(text), twins.matched(text)) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, KnownExpressions,
    ::testing::Values(
        R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"));

// Callouts that count the work must not change what an expression means.
TEST(RegularExpressions, MatchWithAnyRepetition) {
  const std::string a65(65, 'a'), a70(70, 'a');
  std::string letters;
  for (int i = 0; i < 26; ++i) letters += std::string(i > 0 ? "|" : "") + static_cast<char>('A' + i);
  const struct {
    std::string pattern, text;
    Matches expected;
  } cases[] = {
      {"a+?b", "aabab", {{0, 3}, {3, 5}}},
      {"a++b|a", "aabaa", {{0, 3}, {3, 4}, {4, 5}}},
      {"a{2,3}?", "aaaaa", {{0, 2}, {2, 4}}},
      {"a{,2}b", "aaab", {{1, 4}}},
      {"(?:ab)*+c|a", "ababcaba", {{0, 5}, {5, 6}, {7, 8}}},
      {"(?>a|ab)c", "abcac", {{3, 5}}},
      {"(?<!b)a|(?<=b)c", "abac bc", {{0, 1}, {6, 7}}},
      {"a{65}", a70, {{0, 65}}},
      {a65, a70, {{0, 65}}},
      {a65 + "?b", std::string(64, 'a') + "b", {{0, 65}}},
      {letters, "aZQ", {{1, 2}, {2, 3}}},
      {"(?i)a+(?=B|$)", "aAbA", {{0, 2}, {3, 4}}},
      {"[{}]{2}|{", "{}{", {{0, 2}, {2, 3}}},
      {"é+|中{2}|▁*\U0001F600+", "éé中中中▁😀😀", {{0, 4}, {4, 10}, {13, 24}}},
      {R"(\x{41}+|\x{1F600}{2}|[\x{e9}x])", "AAx\U0001F600\U0001F600\u00E9", {{0, 2}, {2, 3}, {3, 11}, {11, 13}}}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.pattern);
    Matches found;
    Regex(c.pattern).each_match(c.text, [&](std::size_t begin, std::size_t end) { found.emplace_back(begin, end); });
    EXPECT_EQ(found, c.expected);
  }
}

TEST(Scanners, AreOnlyForExpressionsThatAreKnown) {
  EXPECT_FALSE(find_scanner(R"(\p{L}+)"));
}

}  // namespace
}  // namespace qtrain
