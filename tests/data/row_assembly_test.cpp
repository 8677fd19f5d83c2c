#include "data/row_assembly.h"

#include <gmock/gmock.h>

#include <cctype>

#include "tests/data/dataset_support.h"
#include "text/template/chat_template.h"

namespace qtrain {
namespace {

using ::testing::HasSubstr;

/// Bytes as tokens, with the shortest possible template.
class LongRows : public test::DatasetFolder {
 protected:
  Dataset built(std::string_view rows, DatasetOptions options) {
    options.files = {write("rows.jsonl", rows)};
    options.max_length = 10;
    const ChatTemplate plain(
        "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content + '.' }}{% endgeneration %}"
        "{% else %}{{ m.content + '>' }}{% endif %}{% endfor %}",
        "plain", {});
    return build_dataset(options, {.tokenizer = bytes_, .chat_template = &plain}, pool_);
  }
  /// The text of a row with everything but targets in upper case.
  std::string shown(const Dataset& data, std::int64_t row) const {
    std::string text;
    const RowView view = data.row(row);
    for (std::size_t t = 0; t < view.input_ids.size(); ++t) {
      const std::int32_t id = view.input_ids[t];
      const char c = id < 3 ? '$' : static_cast<char>(id);
      text += view.labels[t] == kNoTarget ? static_cast<char>(std::toupper(c)) : c;
    }
    return text;
  }
  static std::string turns(const std::vector<std::string>& texts) {
    Json messages = Json::array();
    for (std::size_t i = 0; i < texts.size(); ++i)
      messages.push_back({{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", texts[i]}});
    return dump_json({{"messages", messages}}) + "\n";
  }

  test::ByteTokenizer bytes_{false};
};

TEST_F(LongRows, QuestionsGiveWayToAnswers) {
  const DatasetOptions options{.too_long = TooLong::keep_answers, .assistant_only_loss = true};
  const std::pair<std::string, const char*> rows[] = {
      {turns({"abcdefghijkl", "yes"}), "ABCDEFyes."},
      {turns({"ab", "a long answer"}), "AB>a long "},
      {turns({"abcdefghij", "klmnopqrst"}), "ABCDEklmno"},
      {turns({"abcdef", "x", "ghijklm", "y"}), "ABCDEF>x.G"},
      {turns({"ab", "yes"}), "AB>yes."},
  };
  for (const auto& [row, text] : rows) EXPECT_EQ(shown(built(row, options), 0), text) << row;
  const DatasetStatistics s = built(turns({"abcdefghijkl", "yes"}), options).statistics();
  EXPECT_EQ(s.truncated_rows, 1);
  EXPECT_EQ(s.truncated_tokens, 7);
  EXPECT_EQ(s.max(), 17);
}

TEST_F(LongRows, QuestionsGiveWayWhateverIsLearnt) {
  const std::string row = turns({"abcdefghijkl", "yes"});
  EXPECT_EQ(shown(built(row, {.too_long = TooLong::keep_answers}), 0), "abcdefyes.");
  EXPECT_EQ(
      shown(built(row, {.too_long = TooLong::keep_answers, .packing = Packing::bfd, .assistant_only_loss = true}), 0),
      "ABCDEFyes.");
  const std::string two = turns({"abcdefgh", "x", "ijk", "yes"});
  EXPECT_EQ(shown(built(two, {.too_long = TooLong::keep_answers, .last_turn_only_loss = true}), 0), "ABIJK>yes.")
      << "the last turn gets room first";
  EXPECT_EQ(
      shown(built("{\"prompt\":\"abcdefghijkl\",\"completion\":\"yes\"}\n", {.too_long = TooLong::keep_answers}), 0),
      "$ABCDEyes$");
  EXPECT_EQ(shown(built("{\"text\":\"abcdefghijkl\"}\n", {.too_long = TooLong::keep_answers}), 0), "$abcdefghi");
}

TEST_F(LongRows, AreDroppedAndCountedOrAnError) {
  const std::string rows = turns({"abcdefghijkl", "yes"}) + turns({"a", "b"});
  for (const Packing packing : {Packing::none, Packing::bfd}) {
    const Dataset data = built(rows, {.too_long = TooLong::drop, .packing = packing});
    EXPECT_EQ(data.statistics().documents, 1);
    EXPECT_EQ(data.statistics().too_long.count, 1);
    EXPECT_EQ(data.statistics().truncated_rows, 0);
    EXPECT_THAT(data.statistics().too_long.place, ::testing::EndsWith("rows.jsonl:1"));
    EXPECT_EQ(data.statistics().too_long.reason, "it has 17 tokens");
    EXPECT_THAT(
        test::error_of(ErrorKind::input, [&] { built(rows, {.too_long = TooLong::raise, .packing = packing}); }),
        HasSubstr("rows.jsonl:1: the row has 17 tokens, but max_length is 10"));
  }
  EXPECT_THAT(test::error_of(ErrorKind::input,
                             [&] {
                               built(turns({"abcdefghijkl", "yes"}), {.too_long = TooLong::drop});
                             }),
              HasSubstr("all rows are longer than max_length 10"));
}

TEST_F(LongRows, TextsBecomeSeveralRowsWhereThatIsAskedFor) {
  const std::string rows = "{\"text\":\"abcdefghijklm\"}\n";
  const Dataset data = built(rows, {.too_long = TooLong::drop, .split_long_texts = true});
  ASSERT_EQ(data.size(), 2);
  EXPECT_EQ(shown(data, 0), "$abcdefghi");
  EXPECT_EQ(shown(data, 1), "jklm$");
  EXPECT_EQ(data.statistics().truncated_rows, 0);
  EXPECT_EQ(data.statistics().too_long.count, 0);
}

}  // namespace
}  // namespace qtrain
