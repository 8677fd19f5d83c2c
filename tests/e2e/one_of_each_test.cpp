// A run of one step on one row with one checkpoint: messages say "1 row", not "1 rows".
#include <regex>

#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

/// Plurals that follow the number 1.
std::vector<std::string> wrong_plurals(const std::string& text) {
  static const std::regex kWrong(
      R"([^0-9.,-]1 ([a-z]+ )?(rows|steps|updates|tokens|targets|checkpoints|tensors|messages)"
      R"(|answers|matrices|problems|are)\b)");
  std::vector<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), kWrong), end; it != end; ++it) found.push_back(it->str());
  return found;
}

TEST(OneOfEach, IsNotCalledSeveral) {
  const TempFolder folder;
  write_untrained_model(folder / "model");
  const std::string rows = (folder / "rows.jsonl").string(), run = (folder / "config.json").string();
  write_file(rows, "{\"input_ids\": [5, 6]}\n");  // one target
  Json config = tiny_run(folder / "out");
  config.update({{"model_name_or_path", (folder / "model").string()},
                 {"random_init", true},
                 {"dataset_name", rows},
                 {"eval_dataset_name", rows},
                 {"eval_strategy", "epoch"},
                 {"per_device_train_batch_size", 1},
                 {"gradient_accumulation_steps", 1},
                 {"max_steps", 1},
                 {"save_strategy", "epoch"}});
  std::string said;
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"--resume", "never"}}) {
    const Outcome outcome = train_ok(folder.path(), config, more);
    said += outcome.err + outcome.out;
  }
  for (const char* text :
       {"data: 1 row, 1 after filtering and packing", "1 target", "training: 1 step of 1 x 1 row,", "step 1: eval_loss",
        "done: 1 step in", "starting over: renamed 1 checkpoint of an earlier run"})
    EXPECT_THAT(said, ::testing::HasSubstr(text));
  const std::string out = (folder / "out").string();
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{run},
        {"validate", run},
        {"estimate", run},
        {"tune", run, "--steps", "1", "--trials", "1"},
        {"preprocess", run},
        {"eval", run},
        {"inspect", out},
        {"clean", out},
        {"init", "--model", (folder / "model").string(), "--data", rows, "--output", (folder / "init.json").string()},
        {"eval", run, "max_length=1"},
        {"preprocess", run, "max_length=1"}}) {
    const Outcome outcome = qtrain({.words = words});
    said += outcome.out + outcome.err;
  }
  write_file(rows, "{\"prompt\": \"a\", \"completion\": \"b\"}\n");
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"eval", run, "--generate", "--base", "--max_new_tokens", "1"}, {"preprocess", run}}) {
    const Outcome outcome = qtrain_ok({.words = words});
    said += outcome.out + outcome.err;
  }
  const Outcome chat = qtrain_ok({.words = {"chat", "--model", out, "--max_new_tokens", "1"}, .input = "a\n"});
  EXPECT_THAT(wrong_plurals(said + chat.err), ::testing::IsEmpty()) << said << chat.err;
}

}  // namespace
}  // namespace qtrain::e2e
