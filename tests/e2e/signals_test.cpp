// Ctrl-C, a closed window and a closed pipe, for every command.
#include <signal.h>

#include "tests/e2e/interrupted.h"

namespace qtrain::e2e {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST_F(Interrupted, TrainingAnswersAtOnceAndAgainLeavesWithoutSaving) {
  write_rows(200'000);
  std::vector<std::string> words = training(100'000, 5);
  words.push_back("dataset_name=" + at("rows.jsonl").string());
  Process process(launch_typed(words));  // now in a step of half a minute
  ASSERT_TRUE(process.waits_for("training:"));
  process.type("\x03");
  ASSERT_TRUE(process.waits_for("Stopping after this step and saving a checkpoint.", kAtOnce)) << process.said();
  EXPECT_TRUE(process.running());
  process.type("\x03");
  const Outcome outcome = process.wait(kAtOnce);
  EXPECT_EQ(outcome.code, 130) << outcome.err;
  EXPECT_FALSE(fs::exists(at("out/checkpoint-1")));
}

TEST_F(Interrupted, AClosedWindowSaves) {
  Process process(launch_typed(training(1, 100'000)));
  ASSERT_TRUE(process.waits_for("step 3/"));
  process.hang_up();
  const Outcome outcome = process.wait();
  EXPECT_EQ(outcome.code, 75) << outcome.err;
  EXPECT_THAT(files_in(at("out")), ::testing::Contains(::testing::StartsWith("checkpoint-")));
}

TEST_F(Interrupted, ATerminateSignalThatIsSentTwiceStillSaves) {
  Process process(launch_of({.words = training(1, 100'000)}));
  ASSERT_TRUE(process.waits_for("step 3/"));
  process.signal(SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait().code, 75);
  EXPECT_THAT(files_in(at("out")), ::testing::Contains(::testing::StartsWith("checkpoint-")));
}

TEST_F(Interrupted, NohupOutlivesTheWindow) {
  std::vector<std::string> words = training(1, 40);
  Launch launch = launch_of({.words = words});
  launch.argv = {"/usr/bin/env", "sh", "-c", "trap '' HUP; exec \"$0\" \"$1\"", program(), words[0]};
  Process process(launch);
  ASSERT_TRUE(process.waits_for("step 3/"));
  process.signal(SIGHUP);
  EXPECT_EQ(process.wait().code, 0);
}

TEST_F(Interrupted, EveryCommandEndsAtOnceAndLeavesNothing) {
  const fs::path model = at("model");
  write_large_model(model);
  fs::create_directories(at("inputs"));
  fs::create_directories(at("outputs"));
  Json lora = tiny_lora_run(at("inputs/adapter"));
  lora.update({{"model_name_or_path", model.string()}, {"max_steps", 1}, {"save_strategy", "no"}});
  write_file(at("inputs/lora.json"), dump_json(lora));
  qtrain_ok({.words = {at("inputs/lora.json").string()}});
  const std::string gguf = at("inputs/model.gguf").string(), out = at("outputs/result").string();
  qtrain_ok({.words = {"export", "--model", model.string(), "--output", gguf, "--type", "f32"}});
  write_rows(20'000);
  std::string prompts;
  for (int i = 0; i < 200; ++i) prompts += "{\"prompt\": \"hello\"}\n";
  write_file(at("inputs/prompts.jsonl"), prompts);
  write_large_adapter(at("inputs/adapter"), at("inputs/large_adapter"));
  Json eval = lora;
  eval.update({{"eval_dataset_name", at("rows.jsonl").string()}, {"packing", false}});
  write_file(at("inputs/eval.json"), dump_json(eval));
  struct Job {
    std::string bar;
    std::vector<std::string> words;
  };
  for (const Job& job : std::vector<Job>{
           {"evaluating", {"eval", at("inputs/eval.json").string()}},
           {"answering",
            {"generate", "--model", model.string(), "--input", at("inputs/prompts.jsonl").string(), "--output", out,
             "--max_new_tokens", "60"}},
           {"quantizing", {"quantize", "--model", model.string(), "--output", out}},
           {"writing", {"quantize", "--model", model.string(), "--output", out}},
           {"merging",
            {"merge", "--model", model.string(), "--adapter", at("inputs/adapter").string(), "--output", out}},
           {"exporting", {"export", "--model", model.string(), "--output", out, "--type", "q4_k"}},
           {"exporting",
            {"export", "--model", model.string(), "--adapter", at("inputs/large_adapter").string(), "--output", out}},
           {"exporting",
            {"export", "--merge", "--model", model.string(), "--adapter", at("inputs/adapter").string(), "--output",
             out}},
           {"importing", {"import", gguf, "--output", out, "--dtype", "bfloat16"}}}) {
    const auto launch = launch_stopped(job.words, {.call = {}, .text = job.bar});
    if (!launch) GTEST_SKIP() << "no library can be loaded before the sanitizer";
    const Outcome outcome = Process(*launch).wait(kAtOnce);
    EXPECT_EQ(outcome.code, 75) << job.bar << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("stopped by a signal")) << job.bar;
    EXPECT_THAT(files_in(at("outputs")), IsEmpty()) << job.bar;
  }
}

TEST_F(Interrupted, WhatAKilledCommandLeftGoesWhenItRunsAgain) {
  write_large_model(at("model"));
  write_model(at("small"), Json::object());
  fs::create_directories(at("outputs"));
  const std::string out = at("outputs/result").string();
  for (const auto& [bar, words] : std::map<std::string, std::vector<std::string>>{
           {"writing", {"quantize", "--model", at("model").string(), "--output", out}},
           {"exporting", {"export", "--model", at("model").string(), "--output", out + ".gguf", "--type", "q4_k"}}}) {
    Process process(launch_typed(words));
    ASSERT_TRUE(process.waits_for(bar)) << process.said();
    while (process.running() && files_in(at("outputs")).empty()) std::this_thread::yield();
    process.signal(SIGKILL);
    ASSERT_EQ(process.wait().code, 128 + SIGKILL);
    EXPECT_THAT(files_in(at("outputs")), ::testing::ElementsAre(::testing::StartsWith(".result"))) << bar;
    std::vector<std::string> again = words;  // the same command with a tiny model
    again.at(2) = at("small").string();
    qtrain_ok({.words = again});
    EXPECT_THAT(files_in(at("outputs")), ::testing::ElementsAre(fs::path(words.at(4)).filename().string())) << bar;
    fs::remove_all(words.at(4));
  }
}

TEST_F(Interrupted, TokenizingLeavesNoCacheAndNoDump) {
  std::string rows;
  for (int i = 0; i < 400'000; ++i) rows += "{\"text\": \"a few words to be read " + std::to_string(i) + "\"}\n";
  write_file(at("rows.jsonl"), rows);
  Json config = tiny_run(at("out"));
  write_untrained_model(at("model"));
  config.update({{"model_name_or_path", at("model").string()},
                 {"dataset_name", at("rows.jsonl").string()},
                 {"token_cache_dir", at("cache").string()}});
  write_file(at("run.json"), dump_json(config));
  fs::create_directories(at("outputs"));
  Process process(launch_typed({"preprocess", at("run.json").string(), "--dump", at("outputs/dump.jsonl").string()}));
  ASSERT_TRUE(process.waits_for("tokenizing"));
  process.type("\x03");
  const Outcome outcome = process.wait(kAtOnce);
  EXPECT_EQ(outcome.code, 75) << outcome.err;
  EXPECT_THAT(files_in(at("outputs")), IsEmpty());
  for (const auto& entry : fs::recursive_directory_iterator(at("cache")))
    EXPECT_THAT(entry.path().filename().string(), AllOf(Not(HasSubstr("tmp")), Not(HasSubstr("tokens"))))
        << entry.path();
}

/// Sends Ctrl-C once the program handles it and has had some time to begin.
Outcome interrupted(Process& process, std::chrono::milliseconds after) {
  const auto deadline = std::chrono::steady_clock::now() + kLongest;
  while (process.running() && !process.handles(SIGINT) && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(after);
  process.type("\x03");
  return process.wait(kAtOnce);
}

TEST_F(Interrupted, CommandsThatOnlyReadEndAtOnce) {
  write_untrained_model(at("model"));
  std::string rows;
  for (int i = 0; i < 400'000; ++i)
    rows += fmt::format(R"({{"messages": [{{"role": "user", "content": "words to be read {}"}}]}})", i) + "\n";
  write_file(at("rows.jsonl"), rows);
  Json config = tiny_run(at("out"));
  config.update({{"model_name_or_path", at("model").string()}, {"dataset_name", at("rows.jsonl").string()}});
  write_file(at("run.json"), dump_json(config));
  const std::string model = at("model").string(), data = at("rows.jsonl").string();
  for (const std::vector<std::string>& words : {std::vector<std::string>{"validate", at("run.json").string()},
                                                {"render", "--model", model, "--input", data},
                                                {"tokenize", "--model", model}}) {
    Process process(launch_typed(words));
    const Outcome outcome = interrupted(process, std::chrono::milliseconds(100));
    EXPECT_EQ(outcome.code, 75) << words[0] << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("stopped by a signal")) << words[0];
  }
}

// Sparse files that take no disk space, and that no command can read to the end in time.
TEST_F(Interrupted, ReadingAnEndlessFileEndsAtOnce) {
  constexpr std::uint64_t kEndless = std::uint64_t{1} << 38;
  const auto run_of = [&](const std::string& output) {
    Json config = tiny_run(at(output));
    config.update({{"model_name_or_path", at("model").string()}, {"max_steps", 1}});
    write_file(at(output + ".json"), dump_json(config));
    return at(output + ".json").string();
  };
  fs::create_directories(at("model"));
  for (const char* file : {"config.json", "model.safetensors"})
    fs::copy_file(kGoldens / "llama_gqa3_tied" / file, at("model") / file);
  for (const char* file : {"model/notes.safetensors", "endless.jsonl", "endless.txt"}) write_file(at(file), "x");
  qtrain_ok({.words = {run_of("done")}});
  for (const char* file : {"model/notes.safetensors", "endless.jsonl", "endless.txt"})
    fs::resize_file(at(file), kEndless);
  const std::string run = run_of("out");
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"preprocess", run, "dataset_name=" + at("endless.jsonl").string()},
        {"preprocess", run, "dataset_name=" + at("endless.txt").string()},
        {"preprocess", run, "dataset_name=" + at("endless.txt").string(), "token_cache_dir="},
        {"train", run},
        {"verify", at("done").string()}}) {
    Process process(launch_of({.words = words}));
    std::this_thread::sleep_for(std::chrono::seconds(1));
    EXPECT_TRUE(process.running()) << words[0];
    process.signal(SIGTERM);
    const Outcome outcome = process.wait(kAtOnce);
    EXPECT_FALSE(outcome.timed_out) << words[0] << outcome.err;
    EXPECT_EQ(outcome.code, 75) << words[0] << outcome.err;
  }
}

TEST_F(Interrupted, BenchKeepsWhatItHasMeasured) {
  Process process(launch_typed({"bench", "--device", "cpu", "--json", at("bench.json").string()}));
  const auto deadline = std::chrono::steady_clock::now() + kLongest;
  while (!fs::exists(at("bench.json")) && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  process.type("\x03");
  const Outcome outcome = process.wait();
  EXPECT_EQ(outcome.code, 75) << outcome.err;
  EXPECT_GE(read_json(at("bench.json")).at("results").size(), 1u);
}

TEST_F(Interrupted, AStopIsADocumentWithJson) {
  write_large_model(at("model"));
  std::vector<std::string> words{"quantize", "--model", at("model").string(), "--output", at("out").string(), "--json"};
  Process process(launch_typed(words));
  ASSERT_TRUE(process.waits_for("quantizing"));
  process.type("\x03");
  const Outcome outcome = process.wait(kAtOnce);
  EXPECT_EQ(parse_json(outcome.out, "stdout").at("error").at("kind"), "stopped");
}

/// Commands that print to stdout: if nobody reads, they can neither continue nor end by themselves.
class Unread : public Interrupted {
 protected:
  std::vector<std::vector<std::string>> commands() {
    write_file(at("strings"), "\"a\"\n\"b\"\n");
    write_file(at("rows.jsonl"), R"({"messages": [{"role": "user", "content": "hi"}]})"
                                 "\n");
    fs::create_directories(at("out/checkpoint-1.superseded"));
    const std::string run = training(1, 2)[0], chat = kChatml.string();
    return {{"tokenize", "--model", chat, "--input", at("strings").string()},
            {"render", "--model", chat, "--input", at("rows.jsonl").string()},
            {"config"},
            {"config", run},
            {"config", run, "--json"},
            {"validate", run},
            {"estimate", run},
            {"preprocess", run},
            {"datasets", folder_.path().string()},
            {"inspect", (kGoldens / "llama_gqa3_tied").string()},
            {"clean", at("out").string()},
            {"clean", at("out").string(), "--yes"},
            {"completion", "bash"},
            {"doctor"},
            {"bench", "copy/", "--device", "cpu", "--small"},
            {"--help"}};
  }
};

TEST_F(Unread, ACommandWhoseReaderWaitsEndsAtOnce) {
  for (const auto& words : commands()) {
    Launch launch = launch_typed(words);
    launch.reader_waits = true;
    Process process(launch);
    const Outcome outcome = interrupted(process, std::chrono::milliseconds(400));
    EXPECT_EQ(outcome.code, 75) << words[0] << outcome.err;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("stopped by a signal"), Not(HasSubstr("error")))) << words[0];
  }
}

TEST_F(Unread, AReaderThatIsGoneEndsACommandQuietly) {
  const auto ends = [](const std::vector<std::string>& words, int code) {
    Launch launch = launch_of({.words = words});
    launch.reader_gone = true;
    const Outcome outcome = Process(launch).wait();
    EXPECT_EQ(outcome.code, code) << words[0] << outcome.err;
    EXPECT_EQ(outcome.err.find("error") != std::string::npos, code == 2) << words[0] << outcome.err;
  };
  for (const auto& words : commands()) ends(words, 141);
  ends({"no_such_command", "--json"}, 2);
}

}  // namespace
}  // namespace qtrain::e2e
