// qtrain push, and runs that push their results.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <thread>

#include "core/os/file.h"
#include "tests/e2e/support.h"
#include "tests/hub/hub_server.h"

namespace qtrain::e2e {
namespace {

using test::HubFault;
using test::HubServer;
using test::ServedRequest;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class PushingRun : public ::testing::Test {
 protected:
  void SetUp() override {
    hub_.set_uploads({.token = "hf_secret"});
    config_ = tiny_lora_run(folder_ / "out");
    config_.update({{"max_steps", 2}, {"save_strategy", "steps"}, {"save_steps", 1}});
  }
  Outcome run(std::vector<std::string> words, const std::string& more = "HF_TOKEN=hf_secret") {
    return Process(launch(std::move(words), more)).wait();
  }
  Launch launch(std::vector<std::string> words, const std::string& more) {
    write_file(folder_ / "config.json", dump_json(config_));
    return launch_of({.words = std::move(words),
                      .folder = folder_.path(),
                      .environment = {more, "HF_HUB_OFFLINE=0", "HF_HOME=" + (folder_ / "hf").string(),
                                      "XDG_CACHE_HOME=" + (folder_ / "caches").string(), "HF_ENDPOINT=" + hub_.url()}});
  }
  /// Lets the hub take nothing of a large file before `until`.
  void hold_uploads(const std::function<bool()>& until) {
    hub_.fail_with([this, until](const ServedRequest& r) -> std::optional<HubFault> {
      if (r.path.find("/storage/") == r.path.npos) return {};
      is_uploading_ = true;
      while (!until()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return {};
    });
  }
  /// A run is told to stop while it pushes.
  void expect_stop(int ranks) {
    hold_uploads([this] { return is_over_.load(); });
    config_.update({{"push_to_hub", true}, {"hub_model_id", "o/n"}, {"hub_private_repo", true}, {"nproc", ranks}});
    Process process(launch({"config.json"}, "HF_TOKEN=hf_secret"));
    while (!is_uploading_ && process.running()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    process.signal(SIGTERM);
    const Outcome outcome = process.wait();
    is_over_ = true;
    EXPECT_EQ(outcome.code, 75) << outcome.err;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("Stopping the push; the result is saved"), HasSubstr("o/n --private"),
                                   Not(HasSubstr("saving the model"))));
    EXPECT_THAT(outcome.out, HasSubstr("wrote ")) << "the summary of the run";
    EXPECT_TRUE(fs::exists(folder_ / "out/adapter_model.safetensors"));
  }
  std::string remote(const std::string& repo, const std::string& file) {
    return hub_.files_of("models/" + repo + "@main").at(file).contents;
  }

  TempFolder folder_;
  std::atomic<bool> is_uploading_ = false, is_over_ = false;
  HubServer hub_;
  Json config_;
};

TEST_F(PushingRun, UploadsItsResultWhenItEnds) {
  config_.update({{"push_to_hub", true}, {"hub_model_id", "o/n"}, {"hub_private_repo", true}});
  const Outcome outcome = run({"config.json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("pushed "), HasSubstr(hub_.url() + "/o/n")));
  EXPECT_THAT(outcome.err + outcome.out, Not(HasSubstr("hf_secret")));
  for (const char* file : {"adapter_model.safetensors", "adapter_config.json"})
    EXPECT_EQ(remote("o/n", file), bytes_of(folder_ / "out" / file)) << file;
  EXPECT_TRUE(hub_.is_private("models/o/n@main"));
  EXPECT_THAT(remote("o/n", "README.md"),
              AllOf(HasSubstr("library_name: peft"), HasSubstr("| updates | 2 |"), HasSubstr("| rank of the adapter |"),
                    Not(HasSubstr(folder_.path().string()))));
  EXPECT_FALSE(hub_.files_of("models/o/n@main").contains("metrics.jsonl"));
  const int commits = hub_.count("/commit/");
  EXPECT_EQ(run({"config.json"}).code, 0);
  EXPECT_EQ(hub_.count("/commit/"), commits) << "the same result again";
  const std::size_t requests = hub_.requests().size();
  ASSERT_EQ(run({"verify", "out"}).code, 0);
  ASSERT_EQ(run({"reproduce", "out", "--output", "again"}).code, 0);
  EXPECT_EQ(hub_.requests().size(), requests) << "only the run itself pushes";
}

TEST_F(PushingRun, OfSeveralRanksPushesOnce) {
  config_.update({{"push_to_hub", true}, {"hub_model_id", "o/n"}, {"nproc", 2}, {"hub_revision", "dev"}});
  const Outcome outcome = run({"config.json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(hub_.count("/commit/dev"), 1);
  EXPECT_EQ(hub_.files_of("models/o/n@dev").at("adapter_model.safetensors").contents,
            bytes_of(folder_ / "out/adapter_model.safetensors"));
}

// The launcher ends ranks that stay behind the others for ddp_timeout, and that are silent for as long again.
TEST_F(PushingRun, OfSeveralRanksPushesForAsLongAsItTakes) {
  constexpr std::chrono::seconds kTimeout{4}, kLongerThanBoth{10};
  std::optional<std::chrono::steady_clock::time_point> began;
  hold_uploads([&] {
    if (!began) began = std::chrono::steady_clock::now();
    return std::chrono::steady_clock::now() - *began > kLongerThanBoth;
  });
  config_.update({{"push_to_hub", true}, {"hub_model_id", "o/n"}, {"nproc", 2}, {"ddp_timeout", kTimeout.count()}});
  const Outcome outcome = run({"config.json", "--quiet"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(remote("o/n", "adapter_model.safetensors"), bytes_of(folder_ / "out/adapter_model.safetensors"));
}

// The push does not keep the launcher from ending ranks that hang, whether they push or not.
TEST_F(PushingRun, OfSeveralRanksEndsIfOneHangsAtItsEnd) {
  if (std::string_view(QTRAIN_RANK_FAULTS).empty()) GTEST_SKIP() << "the fault cannot be loaded beside a sanitizer";
  config_.update({{"push_to_hub", true}, {"nproc", 2}, {"ddp_timeout", 4}});
  for (const int rank : {0, 1}) {
    SCOPED_TRACE(rank);
    config_["hub_model_id"] = fmt::format("o/hangs{}", rank);
    fs::remove_all(folder_ / "out");
    Launch hanging = launch({"config.json", "--quiet"}, "HF_TOKEN=hf_secret");
    hanging.environment.insert(hanging.environment.end(),
                               {"LD_PRELOAD=" QTRAIN_RANK_FAULTS, "RANK_FAULT=hang", "RANK_FAULT_PHASE=exit",
                                fmt::format("RANK_FAULT_RANK={}", rank)});
    const Outcome outcome = Process(hanging).wait(std::chrono::seconds(45));
    EXPECT_FALSE(outcome.timed_out);
    EXPECT_EQ(outcome.code, 7) << outcome.err;
    EXPECT_EQ(remote(fmt::format("o/hangs{}", rank), "adapter_model.safetensors"),
              bytes_of(folder_ / "out/adapter_model.safetensors"));
  }
}

TEST_F(PushingRun, StopsWhileItPushes) {
  expect_stop(1);
}

TEST_F(PushingRun, OfSeveralRanksStopsWhileItPushes) {
  expect_stop(2);
}

TEST_F(PushingRun, WithoutAccessEndsBeforeItBegins) {
  config_.update({{"push_to_hub", true}, {"hub_token", "hf_wrong"}});
  const Outcome outcome = run({"config.json"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("does not accept the token"), Not(HasSubstr("hf_wrong"))));
  EXPECT_FALSE(fs::exists(folder_ / "out"));
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("push_to_hub (out)"), HasSubstr("push_to_hub=false")));
  config_.erase("hub_token");
  const Outcome warned = run({"validate", "config.json", "--json"}, "HF_TOKEN=");
  EXPECT_EQ(warned.code, 0) << warned.err;
  EXPECT_THAT(dump_json(Json::parse(warned.out)["warnings"]), HasSubstr("there is no token"));
  hub_.add("models/o/open", {{"README.md", {.contents = "x"}}});
  hub_.set_uploads({.token = "hf_secret", .is_open = true});
  config_["hub_model_id"] = "o/open";
  EXPECT_THAT(run({"config.json"}, "HF_TOKEN=").err, HasSubstr("wants a token"));
  EXPECT_FALSE(fs::exists(folder_ / "out"));
  config_["hub_model_id"] = "no name";
  EXPECT_THAT(run({"validate", "config.json"}).out, AllOf(HasSubstr("hub_model_id"), HasSubstr("OWNER/NAME")));
  EXPECT_THAT(run({"config.json"}).err, AllOf(HasSubstr("hub_model_id"), HasSubstr("OWNER/NAME")));
}

TEST_F(PushingRun, ATokenOfAConfigForgesNoLineOfARequest) {
  config_.update({{"push_to_hub", true}, {"hub_token", "hf_secret\r\nX-Evil: 1"}});
  const Outcome refused = run({"config.json"}, "HF_TOKEN=");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("hub_token"), Not(HasSubstr("hf_secret"))));
  EXPECT_EQ(hub_.requests().size(), 0u);
  config_["hub_token"] = "hf_secret\n";
  EXPECT_EQ(run({"config.json"}, "HF_TOKEN=").code, 0);
}

// A slash ends the folder's name, and the base model's path looks like a repository.
TEST_F(PushingRun, PathsBecomeNoNamesOfRepositories) {
  fs::create_directory(folder_ / "models");
  fs::create_directory_symlink(config_["model_name_or_path"].get<std::string>(), folder_ / "models/base");
  config_.update({{"push_to_hub", true}, {"model_name_or_path", "models/base"}, {"output_dir", "out/"}});
  const Outcome outcome = run({"config.json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(remote("me/out", "README.md"), AllOf(HasSubstr("# out"), HasSubstr("trained with qtrain"),
                                                   Not(HasSubstr("models/base")), Not(HasSubstr("base_model"))));
}

// The folder around a model may be that of a run, which says nothing about it.
TEST_F(PushingRun, TheCardOfAModelThatNoRunWroteSaysSo) {
  fs::create_directory(folder_ / "out");
  fs::copy(config_["model_name_or_path"].get<std::string>(), folder_ / "out/other", fs::copy_options::recursive);
  fs::remove(folder_ / "out/other/README.md");
  write_file(folder_ / "out/resolved_config.json", dump_json({{"values", {{"learning_rate", {{"value", 0.125}}}}}}));
  const Outcome outcome = run({"push", "out/other", "other"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(remote("me/other", "README.md"),
              AllOf(HasSubstr("written by qtrain"), HasSubstr("--model me/other"), Not(HasSubstr("0.125"))));
}

TEST_F(PushingRun, WhosePushFailsKeepsItsResult) {
  config_.update({{"push_to_hub", true}, {"hub_token", "hf_secret"}});
  hub_.fail_with([](const ServedRequest& r) -> std::optional<HubFault> {
    if (r.path.find("/commit/") == r.path.npos) return {};
    return HubFault{.status = 403};
  });
  const Outcome failed = run({"config.json", "--json", "--events", "events.jsonl"}, "HF_TOKEN=");
  EXPECT_EQ(failed.code, 3);
  EXPECT_THAT(failed.err, AllOf(HasSubstr("may not write"), HasSubstr("qtrain push " + (folder_ / "out").string()),
                                HasSubstr("HF_TOKEN"), Not(HasSubstr("--private"))));
  const Json said = Json::parse(failed.out);
  EXPECT_EQ(said["step"], 2);
  EXPECT_THAT(said["pushed"]["error"].get<std::string>(), HasSubstr("may not write"));
  const std::vector<Json> events = read_jsonl(folder_ / "events.jsonl");
  const auto done = std::ranges::find_if(events, [](const Json& event) { return event["event"] == "done"; });
  ASSERT_NE(done, events.end());
  EXPECT_EQ((*done)["pushed"], said["pushed"]);
  hub_.fail_with({});
  const Outcome pushed = run({"push", "out", "me/out", "--json"});
  ASSERT_EQ(pushed.code, 0) << pushed.err;
  EXPECT_EQ(Json::parse(pushed.out)["commit"], hub_.commit_of("models/me/out@main"));
  EXPECT_THAT(Json::parse(pushed.out)["left_out"], Contains("metrics.jsonl"));
  EXPECT_EQ(remote("me/out", "adapter_model.safetensors"), bytes_of(folder_ / "out/adapter_model.safetensors"));
}

TEST_F(PushingRun, OfAxolotlPushesAsItDoes) {
  write_file(folder_ / "a.yaml",
             "base_model: m\nadapter: lora\nmicro_batch_size: 1\nsequence_len: 8\ndatasets: [{path: a.jsonl}]\n"
             "hub_model_id: o/n\n");
  const Outcome outcome = run({"config", "a.yaml", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json values = Json::parse(outcome.out)["values"];
  EXPECT_EQ(values["push_to_hub"]["value"], true);
  EXPECT_EQ(values["hub_private_repo"]["value"], true);
}

TEST_F(PushingRun, CheckpointsArePushedWithoutTheirState) {
  ASSERT_EQ(run({"config.json"}).code, 0);
  const Outcome dry = run({"push", "out/checkpoint-1", "o/c", "--dry_run"});
  ASSERT_EQ(dry.code, 0) << dry.err;
  EXPECT_THAT(dry.out, AllOf(HasSubstr("would push"), HasSubstr("a new repository"), HasSubstr("left out")));
  EXPECT_EQ(hub_.count("/create"), 0);
  ASSERT_EQ(run({"push", "out/checkpoint-1", "o/c", "--message", "first"}).code, 0);
  const HubServer::Files files = hub_.files_of("models/o/c@main");
  EXPECT_TRUE(files.contains("adapter_model.safetensors"));
  EXPECT_FALSE(files.contains("optimizer.safetensors"));
  ASSERT_EQ(run({"push", "out/checkpoint-1", "o/c", "--all"}).code, 0);
  EXPECT_TRUE(hub_.files_of("models/o/c@main").contains("optimizer.safetensors"));
  std::string damaged = bytes_of(folder_ / "out/adapter_model.safetensors");
  damaged.back() ^= 1;
  write_file(folder_ / "out/adapter_model.safetensors", damaged);
  const Outcome refused = run({"push", "out", "o/c"});
  EXPECT_EQ(refused.code, 3);
  EXPECT_THAT(refused.err, HasSubstr("manifest.json"));
}

TEST_F(PushingRun, WordsThatAreNoRepositoryAreRefused) {
  ASSERT_EQ(run({"config.json"}).code, 0);
  for (const char* name : {"o/n/file.gguf", "o/n:Q4_K_M", "a b", "../x"}) {
    const Outcome outcome = run({"push", "out", name});
    EXPECT_EQ(outcome.code, 2) << name;
    EXPECT_THAT(outcome.err, HasSubstr("OWNER/NAME")) << name;
  }
  EXPECT_EQ(run({"push", "out", "o/n", "--revision", "a..b"}).code, 2);
  EXPECT_EQ(run({"push", ".", "o/n"}).code, 3);
}

}  // namespace
}  // namespace qtrain::e2e
