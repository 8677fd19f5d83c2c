#include "tests/text/template/golden_support.h"

#include <cstdlib>
#include <ctime>
#include <fstream>
#include <map>

#include "core/error.h"
#include "text/template/chat_template.h"

namespace qtrain::test {
namespace {

constexpr std::time_t kNow = 1721901600;  // 2024-07-25 10:00 UTC
const std::map<std::string, std::string> kTokens = {
    {"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}, {"pad_token", "<pad>"}};

const Json* member(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

}  // namespace

void TemplateGolden::SetUp() {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
}

std::vector<Json> read_rows(const std::filesystem::path& file) {
  std::vector<Json> rows;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) rows.push_back(parse_json(line, file.string()));
  return rows;
}

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

void expect_outcome(const Json& got, const Json& want, const std::string& what) {
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
  // Messages of templates, and about undefined values, must be equal word for word.
  if (want["error"] == "TemplateError" || want["error"] == "UndefinedError" || want["error"] == "SecurityError") {
    EXPECT_NE(message.find(want["message"].get<std::string>()), std::string::npos) << what << "\n" << message;
  }
}

}  // namespace qtrain::test
