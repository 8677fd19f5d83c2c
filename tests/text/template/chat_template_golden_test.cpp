#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "core/file.h"
#include "text/template/chat_template.h"
#include "text/template/named_templates.h"
#include "text/template/rendered.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

const fs::path kFolder = fs::path(QTRAIN_SOURCE_DIR) / "tests/text/goldens/template";
constexpr std::time_t kNow = 1721901600;  // 2024-07-25 10:00 UTC
const std::map<std::string, std::string> kTokens = {
    {"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}, {"pad_token", "<pad>"}};

class TemplateGolden : public testing::Test {
 protected:
  void SetUp() override {
    ::setenv("TZ", "UTC", 1);
    ::tzset();
  }
};

std::vector<Json> read_lines(const fs::path& file) {
  std::vector<Json> rows;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) rows.push_back(parse_json(line, file.string()));
  return rows;
}

const Json* member(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

/// The text and ranges, or the message of the error.
Json outcome(const std::string& source, const Json& input) {
  try {
    const ChatTemplate chat_template(source, "t", kTokens);
    const Rendered rendered =
        chat_template.render({.messages = &input.at("messages"),
                              .tools = member(input, "tools"),
                              .documents = member(input, "documents"),
                              .add_generation_prompt = input.value("add_generation_prompt", false),
                              .extra = member(input, "extra"),
                              .now = kNow});
    return {{"text", rendered.text}, {"generated", rendered.generated}};
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::input);
    return {{"error", e.what()}};
  }
}

void expect_same(const Json& got, const Json& want, const std::string& what) {
  if (!want.contains("error")) {
    ASSERT_TRUE(got.contains("text")) << what << "\n" << got;
    EXPECT_EQ(got["text"], want["text"]) << what;
    EXPECT_EQ(got["generated"], want["generated"]) << what;
    return;
  }
  ASSERT_TRUE(got.contains("error")) << what << "\nwant " << want << "\ngot " << got;
  const auto message = got["error"].get<std::string>();
  if (want.contains("line")) {
    EXPECT_TRUE(message.starts_with("t:" + std::to_string(want["line"].get<int>()) + ":")) << what << "\n" << message;
  }
  // What templates themselves say, and what undefined values say, is to be told word for word.
  if (want["error"] == "TemplateError" || want["error"] == "UndefinedError" || want["error"] == "SecurityError") {
    EXPECT_NE(message.find(want["message"].get<std::string>()), std::string::npos) << what << "\n" << message;
  }
}

TEST_F(TemplateGolden, TheLanguageIsJinjas) {
  const std::vector<Json> rows = read_lines(kFolder / "language.jsonl");
  ASSERT_GT(rows.size(), 250u);
  for (const Json& row : rows) {
    Json input = {{"messages", Json::array({{{"role", "user"}, {"content", "hi"}}})}};
    if (row.contains("extra")) input["extra"] = row["extra"];
    expect_same(outcome(row["source"], input), row, row["source"]);
  }
}

TEST_F(TemplateGolden, FamiliesRenderAsInTransformers) {
  const std::vector<Json> rows = read_lines(kFolder / "families.jsonl");
  ASSERT_GT(rows.size(), 100u);
  const Json conversations = read_json(kFolder / "conversations.json");
  for (const Json& row : rows) {
    const auto file = row["template"].get<std::string>(), name = row["case"].get<std::string>();
    expect_same(outcome(read_text(kFolder / "templates" / file), conversations.at(name)), row, file + " " + name);
  }
}

TEST_F(TemplateGolden, NamedTemplatesSayWhatModelsOwnDo) {
  const Json conversations = read_json(kFolder / "conversations.json");
  const std::vector<Json> rows = read_lines(kFolder / "named.jsonl");
  ASSERT_GT(rows.size(), 20u);
  for (const Json& row : rows) {
    const std::string source = find_named_template(row["name"].get<std::string>());
    EXPECT_EQ(outcome(source, conversations.at(row["case"].get<std::string>()))["text"], row["text"]) << row;
  }
}

TEST_F(TemplateGolden, NamedTemplatesMarkWhatTheAssistantSays) {
  const Json input = parse_json(
      R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":"q"},{"role":"assistant","content":"a1"},
                      {"role":"user","content":"q"},{"role":"assistant","content":"a2"}]})",
      "input");
  for (const std::string_view name : template_names()) {
    const Json got = outcome(find_named_template(name), input);
    ASSERT_EQ(got["generated"].size(), 2u) << name << got;
    for (std::size_t turn = 0; turn < 2; ++turn) {
      const std::size_t begin = got["generated"][turn][0], end = got["generated"][turn][1];
      const std::string said = got["text"].get<std::string>().substr(begin, end - begin);
      EXPECT_EQ(said.find("a" + std::to_string(turn + 1)), said.starts_with(' ') ? 1 : 0) << name << got;
      EXPECT_GT(said.size(), 2u) << name << ": without the end of the turn";
    }
  }
}

TEST_F(TemplateGolden, NamedTemplatesRefuseToolsInsteadOfLeavingThemOut) {
  const Json conversations = read_json(kFolder / "conversations.json");
  for (const std::string_view name : template_names())
    for (const char* of : {"tools", "tool_turns", "null_content"})
      EXPECT_TRUE(outcome(find_named_template(name), conversations.at(of)).contains("error")) << name << " " << of;
}

/// Cases of other templates, as make_template_goldens.py --templates writes them; named by an environment variable.
TEST_F(TemplateGolden, OtherTemplates) {
  const char* file = std::getenv("QTRAIN_TEMPLATE_CASES");
  if (!file) GTEST_SKIP() << "QTRAIN_TEMPLATE_CASES names no file";
  for (const Json& row : read_lines(file))
    expect_same(outcome(row["source"], row["input"]), row,
                row["template"].get<std::string>() + " " + row["case"].get<std::string>());
}

}  // namespace
}  // namespace qtrain
