#include "core/utf8.h"

#include <gtest/gtest.h>

#include <vector>

namespace qtrain {
namespace {

struct Case {
  std::string_view text;
  std::string printable;
};

TEST(Utf8, WhatATerminalTakesAsACommandIsShownAsAnEscape) {
  for (const auto& [text, shown] :
       std::vector<Case>{{"plain text\n\twith lines\n", "plain text\n\twith lines\n"},
                         {"gr\u00fc\u00df Gott \u65e5\u672c \U0001f600", "gr\u00fc\u00df Gott \u65e5\u672c \U0001f600"},
                         {"\x1b[31mred", "\\x1b[31mred"},
                         {"\x1b]0;title\x07", "\\x1b]0;title\\x07"},
                         {std::string_view("a\0b", 3), "a\\x00b"},
                         {"over\rwritten\b\x7f", "over\\x0dwritten\\x08\\x7f"},
                         {"\xc2\x9b"
                          "31m",
                          "\\u009b31m"},
                         {"\x9b"
                          "31m",
                          "\\x9b31m"},
                         {"evil\xe2\x80\xae"
                          "gpj.exe\xe2\x81\xa6",
                          "evil\\u202egpj.exe\\u2066"},
                         {"\xd7\xa9\xe2\x80\x8f!", "\xd7\xa9\xe2\x80\x8f!"},
                         {"\xff\xfe"
                          "a\xc3",
                          "\\xff\\xfea\\xc3"},
                         {"\xed\xa0\x80\xf4\x90\x80\x80", "\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80"}}) {
    EXPECT_EQ(printable(text), shown);
    EXPECT_EQ(printable(shown), shown);
    EXPECT_TRUE(is_valid_utf8(printable(text)));
  }
}

TEST(Utf8, IsMadeValid) {
  for (const auto& [text, valid] : std::vector<Case>{{"", ""},
                                                     {"\x1b\xc3\xa9", "\x1b\xc3\xa9"},
                                                     {"a\xff", "a\xef\xbf\xbd"},
                                                     {"\xc3", "\xef\xbf\xbd"},
                                                     {"\xe2\x82", "\xef\xbf\xbd\xef\xbf\xbd"}}) {
    EXPECT_EQ(valid_utf8(text), valid);
    EXPECT_EQ(is_valid_utf8(text), text == valid);
  }
}

}  // namespace
}  // namespace qtrain
