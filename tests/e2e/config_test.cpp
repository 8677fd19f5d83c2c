// What the program reports about config keys that have no effect.
#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class KeysWithoutEffect : public ::testing::Test {
 protected:
  Outcome told(const std::string& command, const Json& changes, const std::vector<std::string>& more = {}) {
    Json c = tiny_run(folder_ / "out");
    c.update(changes);
    write_file(folder_ / "c.json", dump_json(c, 2));
    std::vector<std::string> words{command, "c.json"};
    words.insert(words.end(), more.begin(), more.end());
    return qtrain_ok({.words = words, .folder = folder_.path()});
  }
  TempFolder folder_;
};

TEST_F(KeysWithoutEffect, AreListedByConfigWithTheirReason) {
  const Json changes{{"use_unsloth", true}, {"tf32", true}, {"fp8", true}, {"device", "cpu"}};
  const std::string table = told("config", changes).out;
  const auto begin = table.find("\nwithout effect:\n");
  ASSERT_NE(begin, std::string::npos) << table;
  const std::string block = table.substr(begin);
  EXPECT_THAT(block, ContainsRegex("\nuse_unsloth +true +c.json:[0-9]+: the program has its own kernels\n"));
  EXPECT_THAT(block, ContainsRegex("\ntf32 +true +c.json:[0-9]+: it applies only to GEMMs "));
  EXPECT_THAT(block, ContainsRegex("\nfp8 +true +c.json:[0-9]+: it applies to 16-bit GEMMs"));
  EXPECT_THAT(table.substr(0, begin), ContainsRegex("\ntf32 +true +c.json:[0-9]+\n"));
  const Json json = parse_json(told("config", changes, {"--json"}).out, "stdout");
  EXPECT_EQ(keys_of(json.at("ignored")).size(), 3u) << json.at("ignored");
  EXPECT_THAT(told("config", Json::object()).out, Not(HasSubstr("without effect")));
  EXPECT_THAT(told("config", changes, {"use_unsloth=null"}).out, Not(HasSubstr("use_unsloth")));
}

TEST_F(KeysWithoutEffect, AreAWarningWhereSomethingElseWasMeant) {
  const Json changes{{"lora_r", 4}, {"use_unsloth", true}, {"max_steps", 1}};
  constexpr const char* kWarning = "LoRA keys are given but use_peft is not true: all weights will be trained";
  EXPECT_THAT(told("train", changes, {"--quiet"}).err, AllOf(HasSubstr(kWarning), Not(HasSubstr("use_unsloth"))));
  EXPECT_THAT(told("validate", changes).out, ContainsRegex("warning  c.json:[0-9]+: LoRA keys are given"));
  EXPECT_THAT(told("validate", {{"lora_r", 4}, {"use_peft", false}}).out, Not(HasSubstr("LoRA keys")));
}

}  // namespace
}  // namespace qtrain::e2e
