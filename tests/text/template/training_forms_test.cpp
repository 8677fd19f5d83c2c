#include "text/template/training_forms.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <map>
#include <sstream>
#include <vector>

#include "core/os/file.h"
#include "core/sha256.h"
#include "data/encode.h"
#include "tests/data/support.h"
#include "text/template/chat_template.h"
#include "text/template/load.h"
#include "text/tokenizer/load.h"
#include "text/tokenizer/tokenizer.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const fs::path kForms = fs::path(QTRAIN_SOURCE_DIR) / "tests/text/goldens/training_templates";
constexpr std::time_t kGoldenClock = 1721901600;  // 2024-07-25 10:00 UTC

std::vector<Json> form_lines(const fs::path& file) {
  std::vector<Json> rows;
  std::istringstream lines(read_text(file));
  for (std::string line; std::getline(lines, line);) rows.push_back(parse_json(line, file.string()));
  return rows;
}

std::string stock_text(std::string_view family) {
  return read_text(kForms / "templates" / (std::string(family) + ".jinja"));
}

/// The tokenizer of the goldens; in Phi-3's variant, the tokens of its turns include the following white space.
std::unique_ptr<Tokenizer> form_tokenizer(const fs::path& scratch, bool takes_space) {
  Json json = read_json(kForms / "tokenizer/tokenizer.json");
  if (takes_space)
    for (Json& token : json["added_tokens"])
      for (const char* name : {"<|system|>", "<|user|>", "<|assistant|>", "<|end|>"})
        if (token["content"] == name) token["rstrip"] = true;
  fs::create_directories(scratch);
  write_file(scratch / "tokenizer.json", dump_json(json));
  write_file(scratch / "tokenizer_config.json", read_text(kForms / "tokenizer/tokenizer_config.json"));
  return load_tokenizer(scratch);
}

/// The text of a row in alternately masked and learned parts, beginning with a masked one.
Json parts_of(const EncodedRow& row, const Tokenizer& tokenizer) {
  std::vector<std::vector<std::int32_t>> parts(1);
  for (std::size_t t = 0; t < row.input_ids.size(); ++t) {
    const bool learned = row.labels[t] != kNoTarget;
    if (learned != (parts.size() % 2 == 0)) parts.emplace_back();
    parts.back().push_back(row.input_ids[t]);
  }
  Json texts = Json::array();
  for (const auto& part : parts) texts.push_back(tokenizer.decode(part));
  return texts;
}

class TrainingForms : public test::DataFolder, public ::testing::WithParamInterface<std::string_view> {};

DatasetOptions options_for_mode(const std::string& mode) {
  DatasetOptions options{.assistant_only_loss = mode != "plain", .allow_empty_answers = true};
  if (mode == "all") options.completion_only_loss = false;
  return options;
}

/// Expects the same row as from TRL, or an error if TRL refuses it.
void expect_like_trl(const Json& golden, const Json& row, const TextTools& tools) {
  SCOPED_TRACE(golden["case"].get<std::string>() + ", " + golden["mode"].get<std::string>());
  const RowEncoder encoder(options_for_mode(golden["mode"]), tools);
  if (golden.contains("error")) {
    test::error_of(ErrorKind::input, [&] { encoder.encode(row); });
    return;
  }
  EncodedRow made;
  ASSERT_NO_THROW(made = encoder.encode(row));
  EXPECT_EQ(parts_of(made, tools.tokenizer), golden["parts"]);
  EXPECT_EQ(sha256_of(fmt::format("{}", fmt::join(made.input_ids, ","))).substr(0, 12), golden["tokens"]);
}

struct FormTools {
  TextTools stock, form;  ///< without and with assistant_only_loss
};

void expect_rows_of_trl(std::string_view family, const FormTools& tools) {
  std::map<std::string, Json> rows;
  for (const Json& entry : form_lines(kForms / "conversations.jsonl")) rows[entry["name"]] = entry["row"];
  const std::vector<Json> goldens = form_lines(kForms / "rows" / (std::string(family) + ".jsonl"));
  ASSERT_GT(goldens.size(), rows.size());
  for (const Json& golden : goldens)
    expect_like_trl(golden, rows.at(golden["case"]), golden["mode"] == "plain" ? tools.stock : tools.form);
}

TEST_P(TrainingForms, MakeTheRowsOfTrl) {
  const std::unique_ptr<Tokenizer> tokenizer = form_tokenizer(folder_, GetParam().starts_with("phi3"));
  const ChatTemplate stock(stock_text(GetParam()), std::string(GetParam()), tokenizer->special().named);
  const std::optional<ChatTemplate> form = stock.for_training();
  ASSERT_TRUE(form);
  expect_rows_of_trl(GetParam(), {{*tokenizer, &stock, kGoldenClock}, {*tokenizer, &*form, kGoldenClock}});
}

INSTANTIATE_TEST_SUITE_P(Families, TrainingForms, ::testing::ValuesIn(training_form_families()),
                         [](const auto& family) { return std::string(family.param); });

class StockTemplates : public test::DataFolder {};

TEST_F(StockTemplates, AloneAreReplaced) {
  const std::unique_ptr<Tokenizer> tokenizer = form_tokenizer(folder_, false);
  const ChatTemplate own(stock_text("own"), "own", tokenizer->special().named);
  EXPECT_FALSE(own.for_training());
  expect_rows_of_trl("own", {{*tokenizer, &own}, {*tokenizer, &own}});
}

TEST_F(StockTemplates, AreThoseOfTheGoldens) {
  std::vector<std::string> families;
  for (const fs::directory_entry& file : fs::directory_iterator(kForms / "rows"))
    if (file.path().stem() != "own") families.push_back(file.path().stem());
  const std::vector<std::string_view> known = training_form_families();
  EXPECT_THAT(families, ::testing::UnorderedElementsAreArray(known.begin(), known.end()));
}

TEST_F(StockTemplates, NeedTheLastTurnAloneWhereItAloneIsLearned) {
  const Json turn = {{"role", "user"}, {"content", "q"}};
  const Json row = {
      {"messages", {turn, {{"role", "assistant"}, {"content", "a"}}, turn, {{"role", "assistant"}, {"content", "b"}}}}};
  const Json with_history = {{"instruction", "q"}, {"output", "b"}, {"history", Json::array({{"q", "a"}})}};
  for (const auto& [family, last] : std::map<std::string, std::string>{
           {"gptoss", "<|channel|>final<|message|>b<|return|>"}, {"phi3", "b<|end|><|endoftext|>"}}) {
    const std::unique_ptr<Tokenizer> tokenizer = form_tokenizer(folder_, family == "phi3");
    const ChatTemplate stock(stock_text(family), family, tokenizer->special().named);
    const TextTools tools{*tokenizer, &stock, kGoldenClock};
    const auto learned = [&](const DatasetOptions& options, const Json& of) {
      const EncodedRow made = RowEncoder(options, tools).encode(of);
      EXPECT_EQ(made.lacks, EncodedRow::Lack::nothing) << family << ": " << made.reason;
      const Json parts = parts_of(made, *tokenizer);
      return parts.size() < 2 ? Json() : parts[1];
    };
    EXPECT_EQ(learned({.last_turn_only_loss = true}, row), last);
    EXPECT_EQ(learned({.assistant_only_loss = true}, with_history), last) << "a prompt has no targets";
    EXPECT_EQ(RowEncoder({.assistant_only_loss = true}, tools).encode(row).lacks, EncodedRow::Lack::place) << family;
  }
}

TEST_F(StockTemplates, AreKnownByEveryCharacter) {
  for (const std::string_view family : training_form_families()) {
    const std::string stock = stock_text(family);
    ASSERT_TRUE(training_form(stock)) << family;
    EXPECT_EQ(training_form(stock)->family, family);
    EXPECT_FALSE(training_form(stock + "\n")) << family;
    EXPECT_FALSE(training_form(training_form(stock)->source)) << family;
  }
}

TEST_F(StockTemplates, AreKnownInAFileWhateverItsLineEnds) {
  std::string crlf;
  for (const char c : stock_text("qwen3")) crlf += c == '\n' ? "\r\n" : std::string(1, c);
  EXPECT_TRUE(load_chat_template(write("chat_template.jinja", crlf)).for_training());
  EXPECT_FALSE(ChatTemplate(crlf, "in memory", {}).for_training());
}

TEST_F(StockTemplates, AreLeftAloneWhereATagStandsInThem) {
  EXPECT_FALSE(ChatTemplate(stock_text("qwen3") + "{#{%- generation -%}#}", "t", {}).for_training());
}

TEST_F(StockTemplates, ServeRowsWithToolsTooWhereThereAreSeveral) {
  write("tokenizer_config.json",
        dump_json({{"chat_template", Json::array({{{"name", "default"}, {"template", stock_text("qwen2_5")}},
                                                  {{"name", "tool_use"}, {"template", "tools"}}})}}));
  const ChatTemplate several = load_chat_template(folder_);
  const Json messages = parse_json(R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}])", "");
  const Json tools = parse_json(R"([{"name": "f"}])", "");
  const RenderInput with_tools{.messages = &messages, .tools = &tools};
  EXPECT_EQ(several.render(with_tools).text, "tools");
  const std::optional<ChatTemplate> form = several.for_training();
  ASSERT_TRUE(form);
  EXPECT_THAT(form->render(with_tools).text, HasSubstr("<tools>"));
  EXPECT_EQ(form->render(with_tools).generated.size(), 1u);
}

}  // namespace
}  // namespace qtrain
