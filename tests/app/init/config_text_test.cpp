// The file that `qtrain init` writes.
#include "app/init/config_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/config.h"

namespace qtrain::init {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Choices some(const Overrides& given = {}) {
  Choices choices(given, {});
  choices.add({.key = "model_name_or_path", .value = "m", .reason = "a model"});
  choices.add({.key = "learning_rate", .value = 1e-4, .reason = ""});
  return choices;
}

TEST(InitText, IsAConfigWithComments) {
  const std::string text = config_text("Written here.", some(), "config.json");
  EXPECT_EQ(text,
            "// Written here.\n{\n  // a model\n  \"model_name_or_path\": \"m\",\n  \"learning_rate\": 0.0001\n}\n");
  EXPECT_EQ(parse_config(text, "config.json").value.training.learning_rate, 1e-4);
}

TEST(InitText, IsYamlByItsName) {
  for (const char* name : {"config.yaml", "config.yml"}) {
    const std::string text = config_text("Written here.", some(), name);
    EXPECT_THAT(text, HasSubstr("  # a model\n"));
    EXPECT_THAT(text, Not(HasSubstr("//")));
    EXPECT_EQ(parse_config(text, name).value.training.learning_rate, 1e-4);
  }
}

TEST(InitText, HasWhatTheCommandLineGives) {
  const Choices choices = some({{"lr", "3e-4"},
                                {"seed", "7"},
                                {"lr_scheduler_kwargs.num_cycles", "2"},
                                {"lr_scheduler_type", "cosine_with_restarts"}});
  const Config config = parse_config(config_text("", choices, "c.json"), "c.json").value;
  EXPECT_EQ(config.training.learning_rate, 3e-4);
  EXPECT_EQ(config.training.seed, 7);
  EXPECT_EQ(config.training.lr_scheduler_kwargs.at("num_cycles"), 2);
}

// Names of files and columns are in values and comments.
TEST(InitText, HostileNamesStayValuesAndComments) {
  const std::string hostile = "x\n\"seed\": 9, \xe2\x80\xae */ \x1b[2J \x01 \xff";
  for (const char* name : {"c.json", "c.yaml"}) {
    Choices choices({}, {});
    choices.add({.key = "model_name_or_path", .value = "a\n\"b\": \t\\ #", .reason = hostile});
    const std::string text = config_text(hostile, choices, name);
    const Config config = parse_config(text, name).value;
    EXPECT_EQ(config.model.model_name_or_path, "a\n\"b\": \t\\ #") << name;
    EXPECT_EQ(config.training.seed, 42) << name;
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
  }
}

TEST(InitText, WrapsLongReasons) {
  Choices choices({}, {});
  std::string words;
  for (int i = 0; i < 60; ++i) words += "word ";
  choices.add({.key = "seed", .value = 1, .reason = words});
  std::size_t longest = 0, at = 0;
  const std::string text = config_text("", choices, "c.json");
  for (std::size_t end = text.find('\n'); end != text.npos; at = end + 1, end = text.find('\n', at))
    longest = std::max(longest, end - at);
  EXPECT_LE(longest, 110u);
  EXPECT_EQ(parse_config(text, "c.json").value.training.seed, 1);
}

TEST(InitChoices, KeepWhatTheCommandLineGivesAndAskForTheRest) {
  std::vector<std::string> asked;
  Choices choices({{"epochs", "7"}}, [&](const Choice& choice) {
    if (!choice.asked) return choice.value;
    asked.push_back(choice.key);
    return Json(5e-5);
  });
  EXPECT_EQ(choices.ask({.key = "num_train_epochs", .value = 3, .reason = ""}), 7);
  EXPECT_EQ(choices.ask({.key = "learning_rate", .value = 1e-4, .reason = ""}), 5e-5);
  EXPECT_EQ(choices.add({.key = "seed", .value = 1, .reason = ""}), 1);
  EXPECT_THAT(asked, ::testing::ElementsAre("learning_rate"));
  choices.replace({.key = "seed", .value = 2, .reason = ""});
  choices.replace({.key = "num_train_epochs", .value = 2, .reason = ""});
  EXPECT_EQ(choices.document(), (Json{{"num_train_epochs", 7}, {"learning_rate", 5e-5}, {"seed", 2}}));
}

}  // namespace
}  // namespace qtrain::init
