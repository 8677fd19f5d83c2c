// README and guides: their commands run in order, with a tiny model in place of a real one.
#include <regex>

#include "core/os/file.h"
#include "tests/e2e/support.h"
#include "tests/markdown.h"

namespace qtrain::e2e {
namespace {

std::vector<fs::path> pages_with_commands() {
  std::vector<fs::path> pages = test::pages_below(source_folder() / "docs/guides");
  std::erase(pages, source_folder() / "docs/guides/README.md");  // only a list of the guides
  pages.push_back(source_folder() / "README.md");
  return pages;
}

std::string name_of_page(const ::testing::TestParamInfo<fs::path>& page) {
  return page.param.stem().string();
}

/// Creates model/, train.jsonl and eval.jsonl, which every guide assumes.
void write_beginning(const fs::path& folder) {
  std::vector<Json> rows;
  for (int i = 0; i < 24; ++i)
    rows.push_back({{"messages",
                     {{{"role", "user"}, {"content", "question " + std::to_string(i)}},
                      {{"role", "assistant"}, {"content", "answer " + std::to_string(i)}}}}});
  write_file(folder / "train.jsonl", jsonl(rows));
  write_file(folder / "eval.jsonl", jsonl({rows.begin(), rows.begin() + 4}));
  write_untrained_model(folder / "untrained");
  Json config = tiny_run(folder / "model");
  config.update({{"model_name_or_path", (folder / "untrained").string()},
                 {"dataset_name", (folder / "train.jsonl").string()},
                 {"random_init", true},
                 {"max_steps", 1}});
  train_ok(folder, config);
}

/// Also creates what the quickstart needs: the example with a short run, and a GGUF file under the name of the real
/// one.
void write_example(const fs::path& folder) {
  fs::create_directories(folder / "examples/cypher");
  const std::string config = read_text(source_folder() / "examples/cypher/config.json");
  write_file(folder / "examples/cypher/config.json",
             std::regex_replace(config, std::regex("\"max_steps\": \\d+"), "\"max_steps\": 2"));
  qtrain_ok({.words = {"export", "--model", "model", "--output", "SmolLM2-135M-Instruct.Q4_1.gguf"}, .folder = folder});
}

class PageOf : public ::testing::TestWithParam<fs::path> {};

TEST_P(PageOf, CommandsRun) {
  const TempFolder folder;
  write_beginning(folder.path());
  if (GetParam().filename() == "quickstart.md") write_example(folder.path());
  std::string script = "set -e\n";
  for (const test::FencedBlock& block : test::fenced_blocks(read_text(GetParam())))
    if (block.language == "sh") script += block.text;
  const Outcome outcome =
      Process({.argv = {"/bin/sh", "-c", script},
               .folder = folder.path(),
               .environment = {"PATH=" + fs::path(program()).parent_path().string() + ":" + std::getenv("PATH"),
                               "XDG_CACHE_HOME=" + (folder / "cache").string()}})
          .wait();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

INSTANTIATE_TEST_SUITE_P(Each, PageOf, ::testing::ValuesIn(pages_with_commands()), name_of_page);

}  // namespace
}  // namespace qtrain::e2e
