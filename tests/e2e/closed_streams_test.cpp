// Programs that are started without standard input, output or error: `qtrain ... <&- >&- 2>&-`, or by some daemons.
#include <array>

#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

struct Streams {
  const char* shell;  ///< what is closed
  bool out = false;   ///< whether this includes standard output
};

constexpr std::array<Streams, 7> kClosed{
    {{"<&-"}, {">&-", true}, {"2>&-"}, {"<&- >&-", true}, {"<&- 2>&-"}, {">&- 2>&-", true}, {"<&- >&- 2>&-", true}}};

Outcome without(const Streams& closed, const std::vector<std::string>& words) {
  Launch launch = launch_of({.words = words});
  launch.argv = {"/bin/sh", "-c", std::string("exec \"$0\" \"$@\" ") + closed.shell, program()};
  launch.argv.insert(launch.argv.end(), words.begin(), words.end());
  return Process(launch).wait();
}

class ClosedStreams : public ::testing::Test {
 protected:
  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  /// One call of every command that ends by itself with code 0.
  std::vector<std::vector<std::string>> commands() const {
    const std::string model = at("model"), run = at("run.json"), done = at("done"), out = at("result");
    return {{"train", run, "--resume", "never"},
            {"eval", run, "--base"},
            {"generate", "--model", model, "--prompt", "a", "--max_new_tokens", "2"},
            {"chat", "--model", model, "--max_new_tokens", "2"},
            {"merge", "--model", model, "--adapter", done, "--output", out, "--overwrite"},
            {"quantize", "--model", model, "--output", out, "--overwrite"},
            {"export", "--model", model, "--output", at("model.gguf"), "--overwrite"},
            {"import", at("first.gguf"), "--output", out, "--overwrite"},
            {"preprocess", run, "--dump", at("dump.jsonl"), "--overwrite"},
            {"tokenize", "--model", model, "--input", at("strings")},
            {"render", "--model", model, "--input", at("rows.jsonl")},
            {"config"},
            {"config", run, "--json"},
            {"validate", run},
            {"estimate", run},
            {"tune", run, "--steps", "1", "--trials", "1"},
            {"datasets", folder_.path().string()},
            {"inspect", model},
            {"report", done},
            {"monitor", "--run", done, "--duration", "1"},
            {"verify", done},
            {"compare", done, at("made"), "--output", at("compare.html"), "--overwrite"},
            {"reproduce", done, "--output", at("again")},
            {"clean", done},
            {"completion", "bash"},
            {"man"},
            {"doctor"},
            {"bench", "copy/", "--device", "cpu", "--small"},
            {"launch-script", run, "--slurm"},
            {"--help"}};
  }
  void SetUp() override {
    write_untrained_model(folder_ / "model");
    write_file(folder_ / "strings", "\"a\"\n");
    write_file(folder_ / "rows.jsonl",
               "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"},"
               " {\"role\": \"assistant\", \"content\": \"yes\"}]}\n");
    Json config = tiny_run(at("made"));
    config.update({{"model_name_or_path", at("model")}, {"random_init", true}, {"max_steps", 1}, {"use_peft", false}});
    train_ok(folder_.path(), config);
    fs::copy_file(folder_ / "made/model.safetensors", folder_ / "model/model.safetensors");
    Json lora = tiny_lora_run(at("done"));
    lora.update({{"model_name_or_path", at("model")}, {"dataset_name", at("rows.jsonl")}, {"max_steps", 1}});
    lora.update({{"eval_dataset_name", at("rows.jsonl")}});
    train_ok(folder_.path(), lora);
    lora["output_dir"] = at("out");
    write_file(folder_ / "run.json", dump_json(lora));
    qtrain_ok({.words = {"export", "--model", at("model"), "--output", at("first.gguf")}});
  }
  TempFolder folder_;
};

// A few commands per test, so that even a loaded machine finishes each in time.
constexpr std::size_t kParts = 6;
class ClosedStreamsOf : public ClosedStreams, public ::testing::WithParamInterface<std::size_t> {};

TEST_P(ClosedStreamsOf, EveryCommandEndAsIfNobodyRead) {
  const auto all = commands();
  for (std::size_t i = GetParam(); i < all.size(); i += kParts) {
    const auto& words = all[i];
    const Outcome usual = qtrain({.words = words});
    ASSERT_EQ(usual.code, 0) << words[0] << usual.err;
    for (const Streams& closed : kClosed) {
      fs::remove_all(folder_ / "again");
      const Outcome outcome = without(closed, words);
      EXPECT_FALSE(outcome.timed_out) << words[0] << " " << closed.shell;
      EXPECT_EQ(outcome.code, 0) << words[0] << " " << closed.shell << outcome.err;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Parts, ClosedStreamsOf, ::testing::Range(std::size_t{0}, kParts));

TEST_F(ClosedStreams, LeaveFilesAsTheyAre) {
  for (const Streams& closed : kClosed) {
    EXPECT_EQ(without(closed, {"train", at("run.json"), "--resume", "never"}).code, 0) << closed.shell;
    EXPECT_EQ(bytes_of(folder_ / "out/.lock"), bytes_of(folder_ / "done/.lock")) << closed.shell;
    EXPECT_EQ(bytes_of(folder_ / "out/adapter_model.safetensors"), bytes_of(folder_ / "done/adapter_model.safetensors"))
        << closed.shell;
  }
}

TEST_F(ClosedStreams, AreNoneOfTheRanksEither) {
  for (const Streams& closed : kClosed) {
    const Outcome outcome =
        without(closed, {"train", at("run.json"), "nproc=2", "per_device_train_batch_size=1", "--resume", "never"});
    EXPECT_EQ(outcome.code, 0) << closed.shell << outcome.err;
  }
}

}  // namespace
}  // namespace qtrain::e2e
