#include <gmock/gmock.h>

#include "data/encode.h"
#include "tests/data/dataset_support.h"
#include "text/template/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace qtrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Masks : public test::DatasetFolder {};

TEST_F(Masks, MasksOfTokenRowsApplyWhereThereAreNoLabels) {
  const std::string rows =
      "{\"input_ids\":[1,2,3,4],\"assistant_masks\":[0,1,1,0],\"completion_mask\":[0,0,1,1]}\n"
      "{\"input_ids\":[1,2,3,4],\"assistant_masks\":[0,0,0,0],\"labels\":[1,2,3,4]}\n";
  EXPECT_THAT(build(rows).row(0).labels, ElementsAre(-100, 2, 3, -100));
  EXPECT_THAT(build(rows, {.completion_only_loss = true}).row(0).labels, ElementsAre(-100, -100, 3, -100));
  EXPECT_THAT(build(rows).row(1).labels, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { build("{\"input_ids\":[1,2],\"labels\":[1,-7]}\n"); }),
              HasSubstr("-100 if masked"));
}

TEST_F(Masks, RowsWithoutTargetsAreDroppedOnlyWhereRowsAreCut) {
  const std::string rows = "{\"input_ids\":[1,2],\"labels\":[-100,-100]}\n{\"input_ids\":[1,2]}\n";
  EXPECT_EQ(build(rows).size(), 1);
  EXPECT_EQ(build(rows).statistics().dropped_rows, 1);
  EXPECT_EQ(build(rows, {.max_length = std::nullopt}).size(), 2);
  EXPECT_EQ(build(rows, {.max_length = std::nullopt}).statistics().untargeted_rows, 1);
  EXPECT_EQ(build(rows, {.max_length = 4, .packing = Packing::bfd}).length(0), 4);
}

TEST_F(Masks, AssistantOnlyLossLearnsTheAnswersAndTheirEnd) {
  const Dataset data = build(
      R"({"conversations":[{"from":"human","value":"q1"},{"from":"gpt","value":"first"},{"from":"human","value":"q2"},{"from":"gpt","value":"日本 🦊"}]})",
      {.assistant_only_loss = true});
  EXPECT_EQ(targets_of(data, 0), "first<|im_end|>日本 🦊<|im_end|>");
}

constexpr const char* kTwoTurns =
    R"({"messages":[{"role":"user","content":"q1"},{"role":"assistant","content":"first"},{"role":"user","content":"q2"},{"role":"assistant","content":"last"}]})";

/// Two bytes per token, whatever they are.
class PairTokenizer : public test::ByteTokenizer {
 public:
  PairTokenizer() : ByteTokenizer(false) {}
  Encoding encode_with_offsets(std::string_view text, EncodeOptions) const override {
    Encoding encoding;
    for (std::size_t at = 0; at < text.size(); at += 2) {
      encoding.ids.push_back(static_cast<unsigned char>(text[at]));
      encoding.offsets.emplace_back(at, std::min(at + 2, text.size()));
    }
    return encoding;
  }
};

TEST_F(Masks, ATokenAcrossTheBeginningOrEndOfAnAnswerIsLearntWhole) {
  const ChatTemplate tagged(
      "{% for m in messages %}{% if m.role == 'assistant' %}:{% generation %}{{ m.content }}"
      "{% endgeneration %};{% else %}{{ m.content }}{% endif %}{% endfor %}",
      "tagged", {});
  const auto learned = [&](const Tokenizer& tokenizer, const std::string& question, const std::string& answer) {
    const Json row = {
        {"messages", {{{"role", "user"}, {"content", question}}, {{"role", "assistant"}, {"content", answer}}}}};
    const RowEncoder encoder({.assistant_only_loss = true}, {.tokenizer = tokenizer, .chat_template = &tagged});
    std::string flags;
    for (const std::int32_t label : encoder.encode(row).labels) flags += label == kNoTarget ? '.' : 'x';
    return flags;
  };
  const PairTokenizer pairs;
  EXPECT_EQ(learned(pairs, "q", "abcd"), ".xx.") << "q: ab cd ;";
  EXPECT_EQ(learned(pairs, "qq", "abc"), ".xx.") << "qq :a bc ;";
  EXPECT_EQ(learned(pairs, "qq", "ab"), ".xx") << "qq :a b;";
  EXPECT_EQ(learned(pairs, "q", "a"), ".x") << "q: a;";
  // If the last character takes several tokens, transformers marks only the first one.
  const test::ByteTokenizer bytes(false);
  EXPECT_EQ(learned(bytes, "q", "é"), "..x..") << "q : 2 bytes ;";
  EXPECT_EQ(learned(bytes, "q", "éa"), "..xxx.");
}

TEST_F(Masks, LastTurnOnlyLossLearnsTheLastAnswer) {
  EXPECT_EQ(targets_of(build(kTwoTurns, {.last_turn_only_loss = true}), 0), "last<|im_end|>");
  EXPECT_THAT(test::error_of(ErrorKind::usage, [&] { build("{\"text\":\"a\"}", {.last_turn_only_loss = true}); }),
              HasSubstr("last_turn_only_loss"));
}

TEST_F(Masks, TheKeyThatIsSetIsNamedWhereATemplateDoesNotTellTurnsApart) {
  const auto complaint = [&](const char* source, DatasetOptions options) {
    options.files = {write("rows.jsonl", kTwoTurns)};
    const ChatTemplate chat(source, "t", {});
    const TextTools tools{.tokenizer = *chatml_.tokenizer, .chat_template = &chat};
    return test::error_of(ErrorKind::input, [&] { build_dataset(options, tools, pool_); });
  };
  const char *sorted = "{% for m in messages | sort(attribute='role') %}{{ m.role }}:{{ m.content }};{% endfor %}",
             *unmarked = "{#{% generation %}#}{% for m in messages %}{{ m.content }}{% endfor %}";
  EXPECT_THAT(complaint(sorted, {.last_turn_only_loss = true}), HasSubstr("(last_turn_only_loss: false)"));
  EXPECT_THAT(complaint(sorted, {.assistant_only_loss = true}), HasSubstr("(assistant_only_loss: false)"));
  EXPECT_THAT(complaint(unmarked, {.last_turn_only_loss = true}), HasSubstr("last_turn_only_loss is set"));
  EXPECT_THAT(complaint(unmarked, {.assistant_only_loss = true}), HasSubstr("assistant_only_loss is set"));
}

/// Messages "q1", "a1", "q2", ... by these speakers: "u" and "a"; a capital letter means that the message is excluded
/// from the loss.
Json talk_of(std::string_view speakers, const Json& off) {
  Json messages = Json::array();
  for (std::size_t i = 0; i < speakers.size(); ++i) {
    const char who = speakers[i];
    const bool assistant = who == 'a' || who == 'A';
    Json message = {{"role", assistant ? "assistant" : "user"},
                    {"content", (assistant ? "a" : "q") + std::to_string(i / 2 + 1)}};
    if (who == 'A' || who == 'U') message.update(off);
    messages.push_back(std::move(message));
  }
  return messages;
}

TEST_F(Masks, MessagesThatSayTheyAreNotLearnedAreNot) {
  const DatasetOptions answers{.assistant_only_loss = true}, all{}, last{.last_turn_only_loss = true};
  const struct {
    const char* speakers;
    DatasetOptions options;
    const char* learned;
  } cases[] = {
      {"uAua", answers, "a2<|im_end|>"},
      {"uaua", answers, "a1<|im_end|>a2<|im_end|>"},
      {"uaUA", answers, "a1<|im_end|>"},
      {"UaUa", answers, "a1<|im_end|>a2<|im_end|>"},
      {"uAUa", answers, "a2<|im_end|>"},
      {"uAua", last, "a2<|im_end|>"},
      {"UaUa", all, "a1<|im_end|>a2<|im_end|>"},
      {"UAUa", all, "a2<|im_end|>"},
      {"uAua", all,
       "<|im_start|>user\nq1<|im_end|>\n<|im_start|>assistant\n\n<|im_start|>user\nq2<|im_end|>\n<|im_start|>"
       "assistant\n"
       "a2<|im_end|>\n"},
  };
  const ChatTemplate untagged(
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
      "untagged", {});
  for (const Json& off : {Json{{"weight", 0}}, Json{{"loss", false}}, Json{{"train", false}}})
    for (const auto& c : cases) {
      const Json row = {{"messages", talk_of(c.speakers, off)}};
      EXPECT_EQ(targets_of(build(dump_json(row), c.options), 0), c.learned) << c.speakers << off;
    }
  for (const auto& c : cases) {  // without tags, ends of turns reach further
    const RowEncoder encoder(c.options, {.tokenizer = *chatml_.tokenizer, .chat_template = &untagged});
    const EncodedRow row = encoder.encode({{"messages", talk_of(c.speakers, {{"weight", 0}})}});
    std::vector<std::int32_t> targets;
    for (const std::int32_t label : row.labels)
      if (label != kNoTarget) targets.push_back(label);
    std::string learned = chatml_.tokenizer->decode(targets), expected = c.learned;
    for (std::string* text : {&learned, &expected}) std::erase(*text, '\n');
    EXPECT_EQ(learned, expected) << c.speakers;
  }
}

TEST_F(Masks, ARowOfWhichNothingIsLearnedIsDropped) {
  const std::string rows = dump_json({{"messages", talk_of("uA", {{"weight", 0}})}}) + "\n" +
                           dump_json({{"messages", talk_of("ua", {})}}) + "\n";
  const Dataset data = build(rows, {.assistant_only_loss = true});
  EXPECT_EQ(data.size(), 1);
  EXPECT_EQ(data.statistics().dropped_rows, 1);
}

TEST_F(Masks, SwitchesOfAPromptDoNotMatterWhereItIsNotLearned) {
  const Json row = {{"prompt", talk_of("UAu", {{"weight", 0}})}, {"completion", talk_of("a", {})}};
  EXPECT_EQ(targets_of(build(dump_json(row)), 0), "a1<|im_end|>\n");
  EXPECT_THAT(test::error_of(ErrorKind::input,
                             [&] {
                               build(dump_json({{"messages", talk_of("Uaua", {{"weight", 0}})}}));
                             }),
              HasSubstr("assistant_only_loss: true"));
}

constexpr const char* kCalls =
    R"([{"role":"user","content":"q"},{"role":"assistant","content":"","tool_calls":[{"type":"function","function":{"name":"f","arguments":{}}}]},{"role":"tool","content":"3"},{"role":"assistant","content":"three"}])";

TEST_F(Masks, WhatTheTemplateDoesNotPrintIsCountedAndNamed) {
  const auto row = [](const char* messages, const char* more) {
    return std::string(R"({"messages":)") + messages + more + "}\n";
  };
  const char* plain = R"([{"role":"user","content":"q"},{"role":"assistant","content":"a"}])";
  const std::string called = std::string(kCalls).replace(std::string(kCalls).find("\"\""), 2, "\"I look\"");
  const std::pair<std::string, const char*> cases[] = {
      {row(plain, R"(,"tool_defs":[{"name":"f"}])"), "the column 'tool_defs' is not read"},
      {row(called.c_str(), ""), "the tool_calls of message 1"},
      {row(R"([{"role":"user","content":"q"},{"role":"assistant","content":"a","reasoning_content":"r"}])", ""),
       "the reasoning of message 1"},
  };
  for (const auto& [unprinted, what] : cases) {
    const Dataset data = build(row(plain, "") + unprinted + unprinted);
    EXPECT_EQ(data.size(), 3);
    EXPECT_EQ(data.statistics().unprinted.count, 2) << unprinted;
    EXPECT_THAT(data.statistics().unprinted.place, HasSubstr("rows.jsonl:2")) << unprinted;
    EXPECT_THAT(data.statistics().unprinted.reason, HasSubstr(what));
  }
  EXPECT_EQ(build(row(plain, R"(,"tools":[{"name":"f"}])")).statistics().unprinted.count, 0) << "it prints names";
}

TEST_F(Masks, AnAnswerThatIsEmptySinceTheTemplateHasNoWordsIsAnErrorUnlessAllowed) {
  const std::string
      plain = R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]})",
      calls = std::string(R"({"messages":)") + kCalls + "}",
      legacy =
          R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"","function_call":{"name":"f","arguments":"{}"}}]})";
  for (const std::string& row : {calls, legacy}) {
    const std::string rows = plain + "\n" + row + "\n";
    const std::string error = test::error_of(ErrorKind::input, [&] { build(rows); });
    EXPECT_THAT(error, HasSubstr("rows.jsonl:2"));
    EXPECT_THAT(error, HasSubstr("which leaves an answer to be learned empty"));
    EXPECT_THAT(error, HasSubstr("allow_empty_answers: true"));
    EXPECT_EQ(build(rows, {.skip_empty_answers = true}).statistics().unanswered.count, 1);
    const Dataset allowed = build(rows, {.allow_empty_answers = true});
    EXPECT_EQ(allowed.size(), 2);
    EXPECT_EQ(allowed.statistics().unprinted.count, 1);
  }
  Json off = parse_json(calls, "row");
  off["messages"][1]["weight"] = 0;
  EXPECT_EQ(build(dump_json(off)).statistics().unprinted.count, 1) << "the turn is not a target anyway";
}

TEST_F(Masks, AContentThatIsANumberIsNamedWhereTheTemplateFailsAtIt) {
  for (const char* content : {"4", "0.5", "true"}) {
    const std::string row =
        std::string(R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":)") + content + "}]}";
    EXPECT_THAT(test::error_of(ErrorKind::input, [&] { build(row); }),
                HasSubstr(std::string("The content of message 1 is ") + content));
  }
}

TEST_F(Masks, ResponseAndInstructionTemplatesSayWhatIsLearnt) {
  DatasetOptions options{.response_template = "assistant\n"};
  EXPECT_EQ(targets_of(build(kTwoTurns, options), 0), "last<|im_end|>\n");
  options.instruction_template = "<|im_start|>user";
  EXPECT_EQ(targets_of(build(kTwoTurns, options), 0), "first<|im_end|>\nlast<|im_end|>\n");
  const std::string alpaca = "{\"text\":\"### Ask: 1\\n### Say: x y### Ask: 2\\n### Say: zoë\"}\n";
  options = {.response_template = "### Say:", .instruction_template = "### Ask:"};
  EXPECT_EQ(targets_of(build(alpaca, options), 0), " x y zoë<|im_end|>");
}

TEST_F(Masks, RowsWithoutAResponseTemplateAreDroppedAndCounted) {
  const std::string rows = "{\"text\":\"no answer\"}\n{\"text\":\"Say: this\"}\n";
  const Dataset data = build(rows, {.response_template = "Say:"});
  EXPECT_EQ(data.size(), 1);
  EXPECT_EQ(data.statistics().dropped_rows, 1);
  EXPECT_EQ(targets_of(data, 0), " this<|im_end|>");
}

TEST_F(Masks, EosIsLearntBehindAResponseTemplateWhateverTheTokenizerDoesWithIt) {
  const DatasetOptions options{.files = {write("rows.jsonl", "{\"text\":\"q:a\"}\n{\"text\":\"q:a</s>\"}\n")},
                               .response_template = ":"};
  for (const bool add_eos : {false, true}) {
    const test::ByteTokenizer tokenizer(add_eos);
    const Dataset data = build_dataset(options, {.tokenizer = tokenizer}, pool_);
    for (std::int64_t i = 0; i < 2; ++i)
      EXPECT_THAT(data.row(i).labels, ElementsAre(-100, -100, -100, 'a', 2)) << add_eos;
  }
}

TEST_F(Masks, ATemplateForAnswersExcludesOtherWaysToFindThem) {
  for (const DatasetOptions& options : {DatasetOptions{.assistant_only_loss = true, .response_template = "a"},
                                        DatasetOptions{.last_turn_only_loss = true, .response_template = "a"},
                                        DatasetOptions{.instruction_template = "a"}})
    EXPECT_THAT(test::error_of(ErrorKind::usage, [&] { build(kTwoTurns, options); }), HasSubstr("response_template"));
  EXPECT_THAT(test::error_of(ErrorKind::usage, [&] { build("{\"input_ids\":[1,2]}", {.response_template = "a"}); }),
              HasSubstr("contains tokens"));
}

TEST_F(Masks, WithoutGenerationTagsTheAnswersAreFoundByPrefix) {
  std::string source = chatml_.chat.source();
  for (const std::string tag : {"{%- generation %}", "{% endgeneration %}"}) source.erase(source.find(tag), tag.size());
  const ChatTemplate plain(source, "plain", {});
  const DatasetOptions options{
      .files = {write("rows.jsonl",
                      R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a b"}]})")},
      .assistant_only_loss = true};
  const Dataset data = build_dataset(options, {.tokenizer = *chatml_.tokenizer, .chat_template = &plain}, pool_);
  EXPECT_THAT(targets_of(data, 0), ::testing::StartsWith("a b<|im_end|>"));
  EXPECT_THAT(targets_of(data, 0), ::testing::Not(HasSubstr("user")));
}

/// A template whose answers are located by their prefix, unless a message says "odd": then its length is written first.
const char* const kOddTemplate =
    "{% for m in messages if 'odd' in m.content %}{{ m.content | length }}|{% endfor %}"
    "{% for m in messages %}{{ m.role }}:{{ m.content }}|{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}";

std::string answered(const std::string& answer) {
  return dump_json(
             {{"messages", {{{"role", "user"}, {"content", "q"}}, {{"role", "assistant"}, {"content", answer}}}}}) +
         "\n";
}

TEST_F(Masks, RowsWhoseAnswersCannotBeToldAreLeftOutCountedAndNamed) {
  const ChatTemplate odd(kOddTemplate, "odd", {});
  const auto build_odd = [&](const std::string& rows, DatasetOptions options = {.assistant_only_loss = true}) {
    options.files = {write("rows.jsonl", rows)};
    return build_dataset(options, {.tokenizer = *chatml_.tokenizer, .chat_template = &odd}, pool_);
  };
  const std::string no_answer = "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]}\n";
  const std::string rows = answered("a") + answered("odd") + answered("b") + no_answer;
  for (const Packing packing : {Packing::none, Packing::bfd}) {
    const Dataset data = build_odd(rows, {.packing = packing, .assistant_only_loss = true});
    EXPECT_EQ(data.statistics().unplaced.count, 2);
    EXPECT_THAT(data.statistics().unplaced.place, ::testing::EndsWith("rows.jsonl:2"));
    EXPECT_THAT(data.statistics().unplaced.reason, HasSubstr("in message 1"));
    EXPECT_EQ(data.statistics().source_rows, 4);
    EXPECT_EQ(data.statistics().documents, 2);
    EXPECT_THAT(targets_of(data, 0), ::testing::StartsWith("a|"));
  }
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { build_odd(answered("odd") + answered("a") + answered("odd")); }),
              ::testing::AllOf(HasSubstr("2 of 3 rows"), HasSubstr("rows.jsonl:1"), HasSubstr("generation")));
}

TEST_F(Masks, ARowWithoutTheAssistantIsAnErrorWhereTheTemplateMarksAnswers) {
  const std::string rows = answered("a") + "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]}\n";
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { build(rows, {.assistant_only_loss = true}); }),
              ::testing::AllOf(HasSubstr("rows.jsonl:2"), HasSubstr("the row has no assistant message")));
  EXPECT_EQ(build(rows).size(), 2);
}

TEST_F(Masks, EmptyAnswersAreLeftOutAndCountedOnlyWhereThatIsAskedFor) {
  const std::string rows =
      answered("a") + answered(" \n") + answered("") +
      R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":""},{"role":"user","content":"q"},{"role":"assistant","content":"b"}]})"
      "\n"
      R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":{}}}]}]})"
      "\n"
      R"({"prompt":[{"role":"user","content":"q"}],"completion":[{"role":"assistant","content":""}]})"
      "\n"
      R"({"prompt":"q","completion":"\t"})"
      "\n"
      R"({"prompt":"q","completion":"a"})"
      "\n"
      R"({"text":""})"
      "\n";
  const DatasetStatistics all = build(rows, {.allow_empty_answers = true}).statistics(),
                          skipped = build(rows, {.skip_empty_answers = true, .allow_empty_answers = true}).statistics();
  EXPECT_EQ(all.unanswered.count, 0);
  EXPECT_EQ(all.rows, 9);
  EXPECT_EQ(skipped.rows, 4);
  EXPECT_EQ(skipped.source_rows, 9);
  EXPECT_EQ(skipped.unanswered.count, 5);
  EXPECT_THAT(skipped.unanswered.place, ::testing::EndsWith("rows.jsonl:2"));
  EXPECT_EQ(all.joined_pairs, 2);
  EXPECT_EQ(skipped.joined_pairs, 1);
}

TEST_F(Masks, EmptyCellsOfTablesAreEmptyAnswers) {
  const std::pair<const char*, const char*> tables[] = {
      {"a.csv", "prompt,completion\nq,a\nq,\n"},
      {"b.csv", "instruction;output\nq;a\nq;\n"},
      {"c.tsv", "input\toutput\nq\ta\nq\n"},
      {"d.jsonl", "{\"text\":\"a\"}\n{\"text\":null}\n"},
      {"e.jsonl", "{\"prompt\":\"q\",\"completion\":\"a\"}\n{\"prompt\":\"q\",\"completion\":null}\n"},
  };
  for (const auto& [name, rows] : tables) {
    DatasetOptions options{.files = {write(name, rows)}};
    const auto made = [&] { return build_dataset(options, chatml_.tools(), pool_).statistics(); };
    EXPECT_THAT(test::error_of(ErrorKind::input, made), HasSubstr("skip_empty_answers: true")) << name;
    options.skip_empty_answers = true;
    EXPECT_EQ(made().rows, 1) << name;
    EXPECT_EQ(made().unanswered.count, 1) << name;
  }
}

TEST_F(Masks, DataWhoseAnswersAreAllEmptySaysSo) {
  const std::string row =
      R"({"prompt":[{"role":"user","content":"q"}],"completion":[{"role":"assistant","content":""}]})"
      "\n";
  const std::string complaint =
      test::error_of(ErrorKind::input, [&] { build(row + row, {.skip_empty_answers = true}); });
  EXPECT_THAT(complaint, HasSubstr("rows.jsonl:1: every row has an empty answer (2 rows)"));
  EXPECT_THAT(complaint, HasSubstr("the assistant's message 1 is empty")) << "after message 0, the prompt";
  EXPECT_THAT(complaint, HasSubstr("skip_empty_answers: false"));
}

TEST_F(Masks, ConversationsWithBrokenTurnsAreLeftOutAndCountedOnlyWhereThatIsAskedFor) {
  const std::string broken =
      R"({"messages":[{"role":"user","content":"q"},{"role":"user","content":"q"},{"role":"assistant","content":"a"}]})"
      "\n";
  EXPECT_EQ(build(answered("a") + broken).statistics().rows, 2);
  const DatasetStatistics s =
      build(answered("a") + broken + "{\"instruction\":\"i\",\"output\":null}\n", {.skip_broken_turns = true})
          .statistics();
  EXPECT_EQ(s.rows, 1);
  EXPECT_EQ(s.source_rows, 3);
  EXPECT_EQ(s.broken.count, 2);
  EXPECT_THAT(s.broken.place, ::testing::EndsWith("rows.jsonl:2"));
  EXPECT_THAT(s.broken.reason, HasSubstr("turn 1 has role user"));
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { build(broken, {.skip_broken_turns = true}); }),
              HasSubstr("no row alternates questions and answers (1 row)"));
}

TEST_F(Masks, PlainTextsAreLearntWholeBesideAnswersWhereThatIsAskedFor) {
  const std::string rows = answered("a") + "{\"text\":\"all of it\"}\n{\"prompt\":\"p\\n\",\"completion\":\"c\"}\n";
  test::error_of(ErrorKind::usage, [&] { build(rows, {.assistant_only_loss = true}); });
  const Dataset data = build(rows, {.assistant_only_loss = true, .learn_plain_texts = true});
  EXPECT_EQ(targets_of(data, 0), "a<|im_end|>");
  EXPECT_EQ(targets_of(data, 1), "all of it<|im_end|>");
  EXPECT_EQ(targets_of(data, 2), "c<|im_end|>");
}

}  // namespace
}  // namespace qtrain
