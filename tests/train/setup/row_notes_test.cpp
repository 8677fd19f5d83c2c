// Notes on the rows of a run.
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include "core/os/file.h"
#include "tests/core/temp_folder.h"
#include "train/setup/prepared_data.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const fs::path kChatmlFolder = fs::path(QTRAIN_SOURCE_DIR) / "tests/data/golden/chatml";

/// A model with the tokenizer of the ChatML goldens, and end tokens that a test chooses.
class EndsOfAnswers : public ::testing::Test {
 protected:
  /// The notes on a conversation, for newly prepared rows and for cached ones.
  std::vector<std::string> said(const Json& files, Json config) {
    const fs::path model = folder_ / "model";
    fs::remove_all(model);
    fs::create_directories(model);
    fs::copy_file(kChatmlFolder / "tokenizer.json", model / "tokenizer.json");
    for (const auto& [name, contents] : files.items()) write_file(model / name, dump_json(contents));
    const std::string rows = (folder_ / "rows.jsonl").string();
    write_file(rows, R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a b"}]})"
                     "\n");
    config.update({{"model_name_or_path", model.string()}, {"dataset_name", rows}, {"output_dir", "o"}});
    config["token_cache_dir"] = (folder_ / "cache").string();
    const Config c = parse_config(dump_json(config), "c.json").value;
    std::vector<std::string> warnings;
    for (int i = 0; i < 2; ++i) {
      Log log(LogLevel::error);
      DataPreparation(c, pool_, log).rows(Split::train);
      warnings.push_back(fmt::format("{}", fmt::join(log.warnings(), "\n")));
    }
    return warnings;
  }

  testing::TempFolder folder_;
  ThreadPool pool_{2};
};

TEST_F(EndsOfAnswers, AreHeldAgainstTheEndTokensOfTheRun) {
  const Json of_base = {{"tokenizer_config.json", {{"eos_token", "<|endoftext|>"}}},
                        {"config.json", {{"eos_token_id", 0}}}};
  const auto with = [&](const char* file, const Json& contents) {
    Json files = of_base;
    files[file] = contents;
    return files;
  };
  const struct {
    const char* name;
    Json files, config;
    const char* warning;  // "": none
  } cases[] = {
      {"a base model",
       of_base,
       {{"chat_template_path", "chatml"}},
       "Set eos_token: auto, or eos_token: \"<|im_end|>\""},
      {"learned answers only",
       of_base,
       {{"chat_template_path", "chatml"}, {"assistant_only_loss", true}},
       "Set eos_token: auto, or eos_token: \"<|im_end|>\""},
      {"the key is set", of_base, {{"chat_template_path", "chatml"}, {"eos_token", "<|im_end|>"}}, ""},
      {"the template tells it", of_base, {{"chat_template_path", "chatml"}, {"eos_token", "auto"}}, ""},
      {"of config.json", with("config.json", {{"eos_token_id", 2}}), {{"chat_template_path", "chatml"}}, ""},
      {"of a list", with("config.json", {{"eos_token_id", {0, 2}}}), {{"chat_template_path", "chatml"}}, ""},
      {"a number in generation_config.json",
       with("generation_config.json", {{"eos_token_id", 2}}),
       {{"chat_template_path", "chatml"}},
       ""},
      {"a list in generation_config.json",
       with("generation_config.json", {{"eos_token_id", {0, 2}}}),
       {{"chat_template_path", "chatml"}},
       ""},
      {"of the tokenizer",
       with("tokenizer_config.json", {{"eos_token", {{"content", "<|im_end|>"}}}}),
       {{"chat_template_path", "chatml"}},
       ""},
      {"a format that ends the last answer alone",
       of_base,
       {{"chat_template_path", "axolotl_metharme"}, {"assistant_only_loss", true}},
       ""},
      {"a format that loses system messages",
       of_base,
       {{"chat_template_path", "axolotl_mistral_v2v3"}},
       "drops system messages"},
      {"a template that ends with EOS", of_base, {{"chat_template_path", "vicuna"}}, ""},
      {"ends that are no tokens", of_base, {{"chat_template_path", "llama3"}}, "instead of a special token"},
      {"no end at all",
       of_base,
       {{"chat_template_path", "{% for m in messages %}{{ m.content }}{% endfor %}"}},
       "instead of a special token"},
  };
  for (const auto& c : cases)
    for (const std::string& warning : said(c.files, c.config)) {
      EXPECT_THAT(warning, HasSubstr(c.warning)) << c.name;
      EXPECT_EQ(warning.empty(), *c.warning == '\0') << c.name << ": " << warning;
    }
}

}  // namespace
}  // namespace qtrain
