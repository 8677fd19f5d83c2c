// Secrets in a config are not written anywhere.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

constexpr const char* kSecret = "hf_kept4Ever";

std::string all_files_below(const fs::path& folder) {
  std::string all;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) all += bytes_of(entry.path());
  return all;
}

/// A config key, and a value that contains the secret.
struct Key {
  std::string name;
  Json value;
};
const std::vector<Key>& keys() {
  static const std::vector<Key> kKeys{{"hub_token", kSecret},
                                      {"push_to_hub_token", kSecret},
                                      {"env",
                                       {{"WANDB_API_KEY", kSecret},
                                        {"TELEGRAM_BOT_TOKEN", kSecret},
                                        {"PGPASSWORD", kSecret},
                                        {"ARGS", std::string("--token ") + kSecret}}},
                                      {"hub_model_id", std::string("https://me:") + kSecret + "@hub.example/m"},
                                      {"run_name", std::string("https://") + kSecret + "@hub.example/m"},
                                      {"trackio_space_id", {{"headers", {{"X", kSecret}}}}}};
  return kKeys;
}

class Secrets : public ::testing::Test {
 protected:
  Json config() const {
    Json c = tiny_run(folder_ / "out");
    c.update({{"max_steps", 2},
              {"save_strategy", "steps"},
              {"save_steps", 1},
              {"report_to", {"wandb", "mlflow", "tensorboard"}}});
    for (const Key& key : keys()) c[key.name] = key.value;
    return c;
  }
  std::string file() const { return (folder_ / "config.json").string(); }
  std::vector<std::string> given() const {
    std::vector<std::string> words;
    for (const Key& key : keys())
      words.push_back(key.name + "=" + (key.value.is_string() ? key.value.get<std::string>() : dump_json(key.value)));
    return words;
  }
  static void expect_kept(const std::string& text, const std::string& where) {
    const std::size_t at = text.find(kSecret);
    EXPECT_EQ(at, std::string::npos) << where << ": ..." << text.substr(at < 80 ? 0 : at - 80, 120);
  }
  TempFolder folder_;
};

TEST_F(Secrets, OfAConfigAreNeitherSaidNorWritten) {
  const Outcome run = train_ok(folder_.path(), config());
  expect_kept(run.out + run.err, "train");
  fs::remove_all(folder_ / "out/checkpoint-2");
  const Outcome resumed = qtrain_ok({.words = {file()}});
  EXPECT_NE(resumed.err.find("resumed from"), std::string::npos) << resumed.err;
  expect_kept(resumed.out + resumed.err, "resume");
  const std::string out = (folder_ / "out").string(), tuned = (folder_ / "tuned.json").string();
  qtrain_ok({.words = {"tune", file(), "--steps", "1", "--trials", "1", "--output", tuned}});
  expect_kept(bytes_of(tuned), "tune");
  EXPECT_EQ(read_json(tuned).at("hub_token"), "<redacted>");
  qtrain_ok({.words = {"verify", out}});
  for (const auto& words : std::vector<std::vector<std::string>>{{"config", file()},
                                                                 {"config", file(), "--json"},
                                                                 {"validate", file()},
                                                                 {"validate", file(), "--json"},
                                                                 {"estimate", file(), "--json"},
                                                                 {"report", out, "--json"},
                                                                 {"compare", out, out, "--output", out + "/c.html"},
                                                                 {"verify", out, "--statement", out + "/statement"},
                                                                 {"tune", file(), "--steps", "0"}}) {
    const Outcome outcome = qtrain({.words = words});
    expect_kept(outcome.out + outcome.err, words[0]);
  }
  expect_kept(all_files_below(folder_ / "out"), "output_dir");
}

TEST_F(Secrets, OfTheCommandLineAreNeitherSaidNorWritten) {
  Json plain = tiny_run(folder_ / "out");
  plain.update({{"max_steps", 1}, {"eval_dataset_name", plain["dataset_name"]}});  // so that `eval` is suggested
  write_file(file(), dump_json(plain));
  const std::string event_file = (folder_ / "events").string();
  for (const auto& words : std::vector<std::vector<std::string>>{{"config", file()},
                                                                 {"launch-script", "--slurm", file()},
                                                                 {"launch-script", "--k8s", file()},
                                                                 {"launch-script", "--docker", file(), "--json"},
                                                                 {"train", file(), "--events", event_file}}) {
    std::vector<std::string> all = words;
    for (const std::string& word : given()) all.push_back(word);
    const Outcome outcome = qtrain_ok({.words = all});
    expect_kept(outcome.out + outcome.err, words[0]);
  }
  const std::string events = bytes_of(event_file);
  EXPECT_NE(events.find("qtrain eval"), events.npos) << events;
  expect_kept(events, "--events");
  const std::string tuned = (folder_ / "tuned.json").string();
  qtrain_ok({.words = {"tune", file(), "hub_token=" + std::string(kSecret), "--steps", "1", "--trials", "1", "--output",
                       tuned}});
  expect_kept(bytes_of(tuned), "tune");
  expect_kept(all_files_below(folder_ / "out"), "output_dir");
}

// Of URLs inside of lists and objects, too, in keys with an effect.
TEST_F(Secrets, OfNestedUrlsAreNeitherSaidNorWritten) {
  const std::string url = std::string("https://me:") + kSecret + "@hub.example/rows.jsonl";
  for (const Json& keys : std::vector<Json>{{{"dataset_name", {url}}},
                                            {{"eval_dataset_name", {url}}},
                                            {{"dataset_name", nullptr}, {"dataset_mixture", {{{"path", url}}}}},
                                            {{"report_to", {url}}},
                                            {{"column_mapping", {{"prompt", "{question} " + url}}}}}) {
    Json c = tiny_run(folder_ / "out");
    c.update(keys);
    write_file(file(), dump_json(c));
    for (const char* form : {"--quiet", "--json"}) {
      const Outcome outcome = qtrain({.words = {"config", file(), form}});
      EXPECT_EQ(outcome.code, 0) << outcome.err;
      expect_kept(outcome.out + outcome.err, dump_json(keys));
    }
  }
  Json c = tiny_run(folder_ / "out");
  c.update({{"max_steps", 1}, {"save_strategy", "steps"}, {"save_steps", 1}});
  c.update({{"llm_int8_skip_modules", {url}}, {"report_to", {"wandb", "mlflow"}}});
  train_ok(folder_.path(), c);
  expect_kept(all_files_below(folder_ / "out"), "output_dir");
  EXPECT_EQ(qtrain({.words = {"verify", (folder_ / "out").string()}}).code, 0);
  qtrain_ok({.words = {file()}});
}

TEST_F(Secrets, AreNotInMessagesAboutMistakes) {
  const std::string url = std::string("https://me:") + kSecret + "@hub.example/rows.jsonl";
  for (const std::string& text :
       {std::string(R"({"hub_token": ")") + kSecret, std::string(R"({"hub_token": ")") + kSecret + "\" 3}",
        std::string(R"({"push_to_hub": ")") + url + "\"}", R"({"dataset_name": ")" + url + "\"}",
        R"({"model_name_or_path": ")" + url + "\"}", R"({"eos_token": {"hub_token": ")" + std::string(kSecret) + "\"}}",
        std::string(R"({"deepspeed": {"hub_token": ")") + kSecret + "\"}}",
        std::string(R"({"access_token": ")") + kSecret + "\"}"}) {
    write_file(file(), text);
    for (const char* command : {"train", "validate"})
      for (const char* form : {"--quiet", "--json"}) {
        const Outcome outcome = qtrain({.words = {command, file(), form}});
        EXPECT_NE(outcome.code, 0);
        expect_kept(outcome.out + outcome.err, command + (" " + text));
      }
  }
}

// Misspelled or misplaced settings are repeated in the message.
TEST_F(Secrets, OfArgumentsThatAreNoneAreNotSaid) {
  write_file(file(), "{}");
  const std::string secret = kSecret;
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"config", file(), "hub-token=" + secret},
                                             {"config", file(), "hub_token:" + secret},
                                             {"config", file(), "\"hub_token\"=" + secret},
                                             {"train", file(), R"({"hub_token":")" + secret + "\"}"},
                                             {"train", file(), ".hub_token=" + secret},
                                             {"serve", "--model", "m", "token=" + secret},
                                             {"chat", "--model", "m", "hub_token=" + secret},
                                             {"config", "hub_token=" + secret},
                                             {"hub_token=" + secret, file()},
                                             {"--hub_token=" + secret, file()},
                                             {"https://me:" + secret + "@hub.example/run.json"}}) {
    const Outcome outcome = qtrain({.words = words});
    EXPECT_EQ(outcome.code, 2) << words[0] << outcome.err;
    expect_kept(outcome.out + outcome.err, fmt::format("{}", fmt::join(words, " ")));
  }
}

}  // namespace
}  // namespace qtrain::e2e
