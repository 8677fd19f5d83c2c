// From two names on a hub to an answer, by the three commands that the README shows, in an empty home.
#include <fmt/format.h>

#include "core/os/file.h"
#include "tests/e2e/support.h"
#include "tests/hub/hub_server.h"

namespace qtrain::e2e {
namespace {

using test::HubServer;
using test::repository_of;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

/// A hub with three models and three data sets, and a home with nothing in it.
class Newcomer : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(home());
    add_models();
    add_data_sets();
  }
  fs::path home() const { return folder_ / "home"; }

  void add_models() {
    const fs::path llama = folder_ / "llama", qwen = folder_ / "qwen";
    write_untrained_model(llama);
    write_untrained_model(qwen);
    Json config = read_json(qwen / "config.json");
    config.update({{"architectures", {"Qwen3ForCausalLM"}}, {"model_type", "qwen3"}, {"head_dim", 12}});
    write_file(qwen / "config.json", dump_json(config));
    for (const fs::path& model : {llama, qwen}) give_random_weights(model);
    hub_.add("models/o/llama", repository_of(llama));
    hub_.add("models/o/qwen", repository_of(qwen));
    fs::remove(llama / "chat_template.jinja");
    hub_.add("models/o/base", repository_of(llama));
  }
  void add_data_sets() {
    std::string chats, texts, table = "question;answer\n";
    for (int i = 0; i < 40; ++i) {
      const std::string question = fmt::format("what comes after {}?", i),
                        answer = fmt::format("after {} comes {}", i, i + 1);
      const Json messages{{{"role", "user"}, {"content", question}}, {{"role", "assistant"}, {"content", answer}}};
      chats += dump_json({{"messages", messages}}) + "\n";
      texts += dump_json({{"text", question + " " + answer}}) + "\n";
      table += question + ";" + answer + "\n";
    }
    hub_.add("datasets/o/chats",
             {{"data/train-0.jsonl", {.contents = chats}}, {"data/test-0.jsonl", {.contents = chats}}});
    hub_.add("datasets/o/table", {{"table.csv", {.contents = table}}});
    hub_.add("datasets/o/texts", {{"cat.png", {.contents = "png"}}, {"texts.jsonl", {.contents = texts}}});
  }
  /// A command in an empty folder of its own, without what the tester's environment says about hubs.
  Outcome run(const fs::path& place, std::vector<std::string> words, const std::string& input = "") const {
    std::vector<std::string> argv{"/usr/bin/env"};
    for (const char* name : {"HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_TOKEN", "XDG_CACHE_HOME"})
      argv.insert(argv.end(), {"-u", name});
    argv.insert(argv.end(), {"HOME=" + home().string(), "HF_ENDPOINT=" + hub_.url(), program()});
    argv.insert(argv.end(), words.begin(), words.end());
    return Process({.argv = argv, .folder = place, .input = input}).wait();
  }
  TempFolder folder_;
  HubServer hub_;
};

std::vector<std::string> words_of(const std::string& command) {
  std::istringstream text(command);
  return {std::istream_iterator<std::string>(text), {}};
}

TEST_F(Newcomer, GetsAnAnswerByThreeCommands) {
  for (const std::string model : {"llama", "base", "qwen"})
    for (const std::string data : {"chats", "table", "texts"}) {
      SCOPED_TRACE(model + " on " + data);
      const fs::path place = folder_ / (model + "_" + data);
      fs::create_directories(place);
      const Outcome begun = run(place, {"init", "--model", "o/" + model, "--data", "o/" + data, "--yes", "--json"});
      ASSERT_EQ(begun.code, 0) << begun.err;
      const Json next = parse_json(begun.out, "init").at("next");
      ASSERT_THAT(next, SizeIs(2));

      std::vector<std::string> training = words_of(next[0]), trial = words_of(next[1]);
      training.insert(training.end(), {"max_steps=30", "num_train_epochs=null", "logging_steps=3"});
      const Outcome trained = run(place, {training.begin() + 1, training.end()});
      ASSERT_EQ(trained.code, 0) << trained.err;
      const std::vector<double> losses = column(history(place / "output", "loss"), "loss");
      ASSERT_THAT(losses, SizeIs(10));
      EXPECT_LT(losses.back(), losses.front());

      EXPECT_EQ(trial[1], model == "base" && data == "texts" ? "generate" : "chat") << "it has no chat template";
      trial.insert(trial.end(), {"--greedy", "--max_new_tokens", "4"});
      const Outcome answered = run(place, {trial.begin() + 1, trial.end()}, "what comes after 3?\n");
      EXPECT_EQ(answered.code, 0) << answered.err;
      EXPECT_THAT(answered.out, Not(IsEmpty()));
    }
  EXPECT_EQ(hub_.count("/model.safetensors"), 3) << "once each, for three runs and three answers";
  EXPECT_EQ(hub_.count("cat.png"), 0) << "only what is needed";
}

}  // namespace
}  // namespace qtrain::e2e
