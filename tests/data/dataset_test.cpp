#include <gmock/gmock.h>

#include <atomic>
#include <set>

#include "core/os/stop.h"
#include "tests/data/dataset_support.h"

namespace qtrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

DatasetOptions options_of(const Json& json) {
  DatasetOptions o;
  if (json["max_length"].is_null())
    o.max_length.reset();
  else
    o.max_length = json["max_length"].get<std::int64_t>();
  if (json.value("truncation_mode", "keep_start") == "keep_end") o.too_long = TooLong::keep_end;
  o.assistant_only_loss = json.value("assistant_only_loss", false);
  if (json.contains("completion_only_loss")) o.completion_only_loss = json["completion_only_loss"].get<bool>();
  if (json.value("packing", false)) o.packing = test::packing_named(json.value("packing_strategy", "bfd"));
  return o;
}

TEST(DatasetGolden, RowsAreThoseOfTrl) {
  ThreadPool pool(2);
  for (const Json& golden : read_json(test::golden_folder() / "cases.json")) {
    SCOPED_TRACE(golden["name"].get<std::string>());
    const test::GoldenText text(golden["tokenizer"].get<std::string>());
    DatasetOptions options = options_of(golden["options"]);
    options.files = {(test::golden_folder() / "inputs" / golden["file"].get<std::string>()).string()};
    const Dataset data = build_dataset(options, text.tools(), pool);
    const RawRows expected({test::golden_folder() / "rows" / (golden["name"].get<std::string>() + ".jsonl")});
    ASSERT_EQ(data.size(), expected.size());
    for (std::int64_t i = 0; i < data.size(); ++i)
      EXPECT_EQ(data.dump(i), expected.parse(i)) << "row " << i << " from " << expected.place(i);
  }
}

class Datasets : public test::DatasetFolder {};

std::string numbered_rows(int count) {
  std::string rows;
  for (int i = 0; i < count; ++i)
    rows += R"({"messages":[{"role":"user","content":"question )" + std::to_string(i) +
            R"("},{"role":"assistant","content":")" + std::string(static_cast<std::size_t>(i % 13), 'a') + "\"}]}\n";
  return rows;
}

TEST_F(Datasets, DoNotDependOnTheNumberOfThreads) {
  DatasetOptions options{
      .files = {write("many.jsonl", numbered_rows(3000))}, .max_length = 64, .packing = Packing::bfd};
  std::set<std::uint64_t> seen;
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    seen.insert(build_dataset(options, chatml_.tools(), pool).fingerprint());
  }
  EXPECT_EQ(seen.size(), 1u);
}

TEST_F(Datasets, TheFirstBadRowIsNamedWhateverThreadFindsIt) {
  std::string rows = numbered_rows(500);
  for (int i = 0; i < 300; ++i) rows += "{\"text\": 5}\n";
  for (int attempt = 0; attempt < 5; ++attempt)
    EXPECT_THAT(test::error_of(ErrorKind::input, [&] { build(rows); }),
                HasSubstr("rows.jsonl:501: 'text' is not a string"));
}

/// Requests a stop while it tokenizes the first row.
class StoppedTokenizer : public test::ByteTokenizer {
 public:
  StoppedTokenizer() : ByteTokenizer(false) {}
  std::vector<std::int32_t> encode(std::string_view text, EncodeOptions options) const override {
    set_stop_requested(true);
    ++encoded;
    return ByteTokenizer::encode(text, options);
  }
  mutable std::atomic<int> encoded = 0;
};

// Encoding a single row may take long, and these rows are all encoded in one wave.
TEST_F(Datasets, AStopEndsTheEncodingAfterARow) {
  const StoppedTokenizer tokenizer;
  std::string rows;
  for (int i = 0; i < 200; ++i) rows += "{\"text\": \"ab\"}\n";
  const DatasetOptions options{.files = {write("rows.jsonl", rows)}};
  test::error_of(ErrorKind::stopped, [&] { build_dataset(options, {.tokenizer = tokenizer}, pool_); });
  set_stop_requested(false);
  EXPECT_LE(tokenizer.encoded, pool_.size());
}

TEST_F(Datasets, PackingAllRowsTogetherNeedsFewerRows) {
  const std::string rows = numbered_rows(2500);
  const auto size = [&](std::int64_t batch) {
    return build(rows, {.max_length = 512, .packing = Packing::bfd, .pack_batch_rows = batch}).size();
  };
  EXPECT_LT(size(0), size(1000));
  EXPECT_EQ(size(0), size(2500));
}

TEST_F(Datasets, IsolatedWrappedRowsKeepTheBordersOfDocuments) {
  const std::string rows = "{\"input_ids\":[1,2,3]}\n{\"input_ids\":[4,5,6,7]}\n";
  const DatasetOptions plain{.max_length = 5, .packing = Packing::wrapped};
  DatasetOptions isolated = plain;
  isolated.isolate_wrapped = true;
  EXPECT_THAT(build(rows, plain).position_ids(0), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(build(rows, plain).row(0).labels, ElementsAre(1, 2, 3, 4, 5));
  const Dataset data = build(rows, isolated);
  EXPECT_THAT(data.position_ids(0), ElementsAre(0, 1, 2, 0, 1));
  EXPECT_THAT(data.row(0).labels, ElementsAre(-100, 2, 3, -100, 5));
  EXPECT_THAT(data.position_ids(1), ElementsAre(0, 1));
}

// LLaMA-Factory prepares texts for pre-training like this: each ends in EOS, and BOS replaces the first token of a
// block.
TEST_F(Datasets, BlocksAreCutFromOneTextAndTheirRestIsCounted) {
  const test::ByteTokenizer bytes(false);
  const auto built = [&](std::string_view rows, DatasetOptions options) {
    options.files = {write("rows.jsonl", rows)};
    return build_dataset(options, {.tokenizer = bytes}, pool_);
  };
  const std::string rows = "{\"text\":\"abcd\"}\n{\"text\":\"efghijk\"}\n";
  const DatasetOptions options{.max_length = 4, .packing = Packing::blocks};
  const Dataset data = built(rows, options);
  ASSERT_EQ(data.size(), 3);
  EXPECT_THAT(data.row(0).input_ids, ElementsAre(1, 'b', 'c', 'd'));
  EXPECT_THAT(data.row(1).input_ids, ElementsAre(1, 'e', 'f', 'g'));
  EXPECT_THAT(data.row(2).input_ids, ElementsAre(1, 'i', 'j', 'k'));
  EXPECT_THAT(data.position_ids(2), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(data.statistics().truncated_tokens, 1) << "the last EOS";
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { built("{\"text\":\"ab\"}\n", options); }),
              HasSubstr("3 tokens, too few to fill one block of 4"));
}

TEST_F(Datasets, ARowOfTokensKeepsTheDocumentsOfItsPositions) {
  const Dataset data = build("{\"input_ids\":[1,2,3,4],\"position_ids\":[0,1,0,1]}\n");
  EXPECT_THAT(data.row(0).document_starts, ElementsAre(0, 2));
  EXPECT_EQ(data.statistics().target_tokens, 2);
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { build("{\"input_ids\":[1,2],\"position_ids\":[0,2]}\n"); }),
              HasSubstr("rows.jsonl:1: position_ids"));
}

TEST_F(Datasets, DocumentsOfTokenRowsSurviveBlocksAndTruncation) {
  std::string rows;
  for (int i = 0; i < 100; ++i) rows += "{\"input_ids\":[1,2,3]}\n";
  rows += "{\"input_ids\":[1,2,3,4],\"position_ids\":[0,1,0,0]}\n";
  EXPECT_THAT(build(rows).row(100).document_starts, ElementsAre(0, 2, 3));
  EXPECT_THAT(build(rows, {.max_length = 3}).row(100).document_starts, ElementsAre(0, 2));
  EXPECT_THAT(build(rows).row(0).document_starts, ElementsAre(0));
}

TEST_F(Datasets, TheFingerprintSeesLabelsAndBorders) {
  const auto print = [&](const char* rest) {
    return build("{\"input_ids\":[1,2,3]" + std::string(rest) + "}\n").fingerprint();
  };
  const std::set<std::uint64_t> prints = {print(""), print(",\"labels\":[1,2,-100]"),
                                          print(",\"position_ids\":[0,1,0]")};
  EXPECT_EQ(prints.size(), 3u);
  EXPECT_EQ(print(""), print(",\"labels\":[1,2,3]"));
}

TEST_F(Datasets, BosIsNeverDoubled) {
  const test::GoldenText inst("inst");
  const std::int32_t bos = *inst.tokenizer->special().bos_id;
  const DatasetOptions options{
      .files = {write(
          "bos.jsonl",
          "{\"text\":\"<s>hello\"}\n{\"text\":\"hello\"}\n{\"prompt\":\"<s>a\",\"completion\":\"b\"}\n"
          "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"a\"}]}\n")}};
  const Dataset data = build_dataset(options, inst.tools(), pool_);
  for (std::int64_t i = 0; i < data.size(); ++i) {
    EXPECT_EQ(data.row(i).input_ids[0], bos) << i;
    EXPECT_NE(data.row(i).input_ids[1], bos) << i;
  }
  EXPECT_EQ(data.dump(0), data.dump(1));
}

TEST_F(Datasets, EosIsATargetAlthoughItIsAlsoThePadding) {
  const Dataset data = build("{\"text\":\"hello\"}\n{\"text\":\"\"}\n{\"text\":\"done<|im_end|>\"}\n");
  const std::int32_t eos = *chatml_.tokenizer->special().eos_id;
  for (std::int64_t i = 0; i < data.size(); ++i) EXPECT_EQ(data.row(i).labels.back(), eos);
  EXPECT_EQ(data.row(1).size(), 1);
  EXPECT_EQ(text_of(data, 2), "done<|im_end|>");
  const Dataset bare = build("{\"text\":\"hello\"}\n", {.append_eos = false});
  EXPECT_NE(bare.row(0).input_ids.back(), eos);
}

TEST_F(Datasets, EosIsAppendedOnceWhereTheTokenizerFindsNoneInText) {
  const DatasetOptions options{.files = {write("rows.jsonl", "{\"text\":\"a\"}\n{\"text\":\"a</s>\"}\n")}};
  for (const bool add_eos : {false, true}) {
    const test::ByteTokenizer tokenizer(add_eos);
    const Dataset data = build_dataset(options, {.tokenizer = tokenizer}, pool_);
    for (std::int64_t i = 0; i < 2; ++i) EXPECT_THAT(data.row(i).input_ids, ElementsAre(1, 'a', 2)) << add_eos;
  }
}

TEST_F(Datasets, TheEndOfARowIsKeptWhereThatIsAskedFor) {
  const std::string rows = "{\"input_ids\":[1,2,3,4,5,6],\"position_ids\":[0,1,2,0,0,1]}\n";
  const Dataset data = build(rows, {.max_length = 4, .too_long = TooLong::keep_end});
  EXPECT_THAT(data.row(0).input_ids, ElementsAre(3, 4, 5, 6));
  EXPECT_THAT(data.row(0).document_starts, ElementsAre(0, 1, 2));
}

TEST_F(Datasets, OptionsThatDoNotFitTheRowsAreRefused) {
  const std::string text = "{\"text\":\"a\"}\n";
  EXPECT_THAT(test::error_of(ErrorKind::usage, [&] { build(text, {.assistant_only_loss = true}); }),
              HasSubstr("rows.jsonl:1"));
  EXPECT_THAT(
      test::error_of(ErrorKind::usage, [&] { build(text, {.max_length = std::nullopt, .packing = Packing::bfd}); }),
      HasSubstr("max_length"));
  EXPECT_THAT(test::error_of(ErrorKind::usage, [&] { build(text, {.max_length = 0}); }), HasSubstr("max_length"));
  const DatasetOptions chat{.files = {write("chat.jsonl", numbered_rows(1))}};
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { build_dataset(chat, {.tokenizer = *chatml_.tokenizer}, pool_); }),
              HasSubstr("chat.jsonl:1"));
}

TEST_F(Datasets, DataWithoutAnyTargetIsRefused) {
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { build("{\"input_ids\":[1,2],\"labels\":[-100,-100]}\n"); }),
              HasSubstr("nothing to learn from"));
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { build("[]"); }), HasSubstr("no rows"));
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { build("{\"input_ids\":[1,-2]}\n"); }), HasSubstr("rows.jsonl:1"));
}

TEST_F(Datasets, StatisticsDescribeTheRowsBeforeTruncation) {
  std::string rows;
  for (int n = 1; n <= 100; ++n)
    rows += "{\"input_ids\":" + dump_json(Json(std::vector<int>(std::size_t(n), 7))) + "}\n";
  const Dataset data = build(rows, {.max_length = 90});
  const DatasetStatistics& s = data.statistics();
  EXPECT_EQ(s.source_rows, 100);
  EXPECT_EQ(s.min(), 1);
  EXPECT_EQ(s.max(), 100);
  EXPECT_DOUBLE_EQ(s.mean(), 50.5);
  EXPECT_EQ(s.percentile(0.5), 50);
  EXPECT_EQ(s.percentile(0.95), 95);
  EXPECT_EQ(s.percentile(0), 1);
  EXPECT_EQ(s.percentile(1), 100);
  EXPECT_EQ(s.truncated_rows, 10);
  EXPECT_EQ(s.truncated_tokens, 55);
  EXPECT_EQ(s.tokens, 5050 - 55);
  EXPECT_EQ(s.max_token_id, 7);
}

TEST_F(Datasets, ShuffleKeepsEveryRowAndFollowsTheSeed) {
  const std::string rows = numbered_rows(50);
  const auto texts = [&](const DatasetOptions& options) {
    const Dataset data = build(rows, options);
    std::vector<std::string> out;
    for (std::int64_t i = 0; i < data.size(); ++i) out.push_back(text_of(data, i));
    return out;
  };
  const auto plain = texts({});
  const auto shuffled = texts({.shuffle_dataset = true, .seed = 1});
  EXPECT_NE(plain, shuffled);
  EXPECT_THAT(shuffled, ::testing::UnorderedElementsAreArray(plain));
  EXPECT_EQ(shuffled, texts({.shuffle_dataset = true, .seed = 1}));
  EXPECT_NE(shuffled, texts({.shuffle_dataset = true, .seed = 2}));
}

TEST_F(Datasets, ShuffledRowsArePackedInAnotherCompany) {
  std::string rows;
  for (int i = 0; i < 40; ++i) rows += "{\"input_ids\":[" + std::to_string(i) + ",7,7]}\n";
  const auto documents = [&](bool shuffle) {
    const Dataset data = build(rows, {.max_length = 6, .packing = Packing::bfd, .shuffle_dataset = shuffle});
    std::set<std::vector<std::int32_t>> pairs;
    std::set<std::int32_t> seen;
    for (std::int64_t i = 0; i < data.size(); ++i) {
      pairs.insert({data.row(i).input_ids[0], data.row(i).input_ids[3]});
      seen.insert({data.row(i).input_ids[0], data.row(i).input_ids[3]});
    }
    EXPECT_EQ(seen.size(), 40u);
    return pairs;
  };
  EXPECT_TRUE(documents(false).contains({0, 1}));
  EXPECT_NE(documents(true), documents(false));
}

TEST_F(Datasets, ProgressIsReportedAndMayStop) {
  std::vector<std::int64_t> seen;
  DatasetOptions options;
  options.progress = [&](std::int64_t done, std::int64_t rows) {
    EXPECT_EQ(rows, 5000);
    seen.push_back(done);
  };
  const std::string rows = numbered_rows(5000);
  build(rows, options);
  EXPECT_EQ(seen.back(), 5000);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  options.progress = [](std::int64_t, std::int64_t) { fail(ErrorKind::stopped, {.cause = "stop"}); };
  test::error_of(ErrorKind::stopped, [&] { build(rows, options); });
}

TEST_F(Datasets, OneVeryLongRowIsARow) {
  std::string text;
  for (int i = 0; i < 60000; ++i) text += "wörd 🦊";
  const Dataset data = build(R"({"text":")" + text + "\"}\n", {.max_length = std::nullopt});
  EXPECT_GT(data.length(0), 100000);
  EXPECT_EQ(text_of(data, 0), text + "<|im_end|>");
}

TEST_F(Datasets, HeldOutRowsAreInOnePartOnly) {
  const RawRows rows({write("rows.jsonl", numbered_rows(101))});
  const HeldOut parts = hold_out(rows, 0.1, 7);
  EXPECT_EQ(parts.evaluation.size(), 11);
  const auto line_of = [](const RawRows& part, std::int64_t row) {
    const std::string place = part.place(row);
    return std::stoll(place.substr(place.rfind(':') + 1));
  };
  std::set<std::string> places;
  for (const RawRows* part : {&parts.train, &parts.evaluation})
    for (std::int64_t i = 0; i < part->size(); ++i) {
      places.insert(part->place(i));
      if (i > 0) {
        EXPECT_LT(line_of(*part, i - 1), line_of(*part, i)) << "the file's order is kept";
      }
    }
  EXPECT_EQ(places.size(), 101u);
  EXPECT_EQ(parts.evaluation.place(0), hold_out(rows, 0.1, 7).evaluation.place(0));
  EXPECT_EQ(hold_out(rows, 1e-9, 7).evaluation.size(), 1);
  EXPECT_EQ(hold_out(rows, 20, 7).evaluation.size(), 20);
  EXPECT_EQ(hold_out(rows, 20, 7).train.size(), 81);
  test::error_of(ErrorKind::usage, [&] { hold_out(rows, 101, 7); });
}

}  // namespace
}  // namespace qtrain
