#include "data/shorten.h"

#include <gtest/gtest.h>

#include <string>

namespace qtrain {
namespace {

// Expected results are those of infer_seqlen in LLaMA-Factory 0.9.5.
TEST(Shorten, AnAnswerIsKeptBeforeItsQuestion) {
  struct Case {
    TurnLengths turn;
    std::int64_t room;
    TurnLengths kept;
  };
  for (const Case& c : {Case{{300, 10}, 64, {54, 10}}, Case{{10, 300}, 64, {10, 54}}, Case{{300, 300}, 64, {32, 32}},
                        Case{{20, 10}, 64, {20, 10}}, Case{{31, 33}, 64, {31, 33}}, Case{{32, 32}, 64, {32, 32}},
                        Case{{100, 40}, 64, {46, 18}}, Case{{7, 3}, 5, {4, 1}}, Case{{1, 9}, 3, {1, 2}},
                        Case{{0, 70}, 64, {0, 64}}, Case{{70, 0}, 64, {64, 0}}, Case{{64, 1}, 1, {1, 0}}}) {
    const TurnLengths kept = shortened(c.turn, c.room);
    EXPECT_EQ(kept.question, c.kept.question) << c.turn.question << " " << c.turn.answer << " " << c.room;
    EXPECT_EQ(kept.answer, c.kept.answer) << c.turn.question << " " << c.turn.answer << " " << c.room;
  }
}

/// "qqqaa": tokens of questions and answers; dots mark those that are cut.
std::string kept(const std::string& row, const ShortenRules& rules) {
  std::vector<bool> said;
  for (const char c : row) said.push_back(c == 'a');
  const std::vector<bool> stay = kept_tokens(said, rules);
  std::string out;
  for (std::size_t t = 0; t < row.size(); ++t) out += stay[t] ? row[t] : '.';
  return out;
}

TEST(Shorten, RoomGoesToOneTurnAfterTheOther) {
  EXPECT_EQ(kept("qqqqqqqqaaqqqa", {.room = 6}), "qqqq....aa....");
  EXPECT_EQ(kept("qqqqqqqqaaqqqa", {.room = 6, .last_first = true}), "qq........qqqa");
  EXPECT_EQ(kept("qqaaqqqqqqaaqqqqa", {.room = 9}), "qqaaqqq...aa.....");
  EXPECT_EQ(kept("qqqqqqqq", {.room = 3}), "qqq.....") << "no answer is known";
  EXPECT_EQ(kept("qqa", {.room = 9}), "qqa");
}

}  // namespace
}  // namespace qtrain
