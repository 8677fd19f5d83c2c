#include "dist/plain_words.h"

#include <gtest/gtest.h>

namespace qtrain {
namespace {

TEST(PlainWords, AreWhatATerminalMayShow) {
  const std::string bad = "\xEF\xBF\xBD";
  const struct {
    std::string said, shown;
  } cases[]{{"rank 1: naïve 模型 \xF0\x9F\x98\x80\t.", "rank 1: naïve 模型 \xF0\x9F\x98\x80\t."},
            {"\x1b[2J\x1b]0;title\x07", bad + "[2J" + bad + "]0;title" + bad},
            {"a\r\nb\x7f", "a" + bad + bad + "b" + bad},
            {std::string("nul\0.", 5), "nul" + bad + "."},
            {"\xC2\x9B"
             "31m",
             bad + "31m"},  // CSI of C1
            {"\xE2\x80\xAE"
             "exe",
             bad + "exe"},                                // right-to-left override
            {"\xE2\x80\xA8", bad},                        // line separator
            {"\xC0\xAF", bad + bad},                      // an overlong slash
            {"\xED\xA0\x80", bad + bad + bad},            // a surrogate
            {"\xF4\x90\x80\x80", bad + bad + bad + bad},  // beyond U+10FFFF
            {"cut \xE2\x82", "cut " + bad + bad}};
  for (const auto& c : cases) EXPECT_EQ(plain_words(c.said), c.shown) << c.said;
}

TEST(PlainWords, AreBounded) {
  EXPECT_EQ(plain_words(std::string(10, 'x'), 10), std::string(10, 'x'));
  EXPECT_EQ(plain_words(std::string(11, 'x'), 10), std::string(10, 'x') + "...");
  EXPECT_EQ(plain_words("ééé", 5), "éé...");
}

}  // namespace
}  // namespace qtrain
