// The server as a program: how it starts, what it refuses, how it ends. Its answers are tested in tests/app/serve.
#include <fmt/format.h>
#include <signal.h>

#include <cstdlib>
#include <regex>

#include "core/http/server.h"
#include "core/os/file.h"
#include "tests/core/http/client.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;

class Serve : public ::testing::Test {
 protected:
  /// A golden model with a tokenizer of one character per id.
  std::string model() {
    const fs::path to = folder_ / "model";
    fs::create_directories(to);
    for (const char* file : {"config.json", "model.safetensors"})
      fs::copy_file(kGoldens / "llama_gqa3_tied" / file, to / file);
    write_letter_tokenizer(to, read_json(to / "config.json").at("vocab_size"));
    return to.string();
  }
  TempFolder folder_;
};

std::string get(int port, const std::string& path) {
  http::testing::RawClient client(port);
  client.send(http::testing::request_text("GET " + path, {{"Connection", "close"}}));
  return client.receive_all();
}

int port_of(Process& server) {
  EXPECT_TRUE(server.waits_for("quit)\n")) << server.said();
  const std::string said = server.said();
  std::smatch url;
  EXPECT_TRUE(std::regex_search(said, url, std::regex(R"(ready: http://127\.0\.0\.1:(\d+) \()"))) << said;
  return url.empty() ? 0 : std::stoi(url[1]);
}

TEST_F(Serve, SaysWhereItIsAndEndsWithASignal) {
  for (const int number : {SIGTERM, SIGINT}) {
    Process server(launch_of({.words = {"serve", "--model", model(), "--port", "0", "--json", "--threads", "1"}}));
    const int port = port_of(server);
    EXPECT_THAT(get(port, "/v1/models"), ::testing::AllOf(HasSubstr(" 200 "), HasSubstr("\"id\":\"model\"")));
    server.signal(number);
    const Outcome outcome = server.wait();
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const Json ready = Json::parse(outcome.out);
    EXPECT_EQ(ready.at("port"), port);
    EXPECT_EQ(ready.at("models"), Json::array({"model"}));
    fs::remove_all(folder_ / "model");
  }
}

// Folder names may come from strangers.
TEST_F(Serve, NamesOfModelsStayWithinTheirLine) {
  const fs::path base = model(), odd = folder_ / "m\nready: elsewhere (";
  fs::rename(base, odd);
  Process server(launch_of({.words = {"serve", "--model", odd.string(), "--port", "0", "--threads", "1"}}));
  ASSERT_TRUE(server.waits_for("quit)\n")) << server.said();
  EXPECT_EQ(server.said().find("\nready: elsewhere"), std::string::npos) << server.said();
  EXPECT_THAT(server.said(), HasSubstr("m\\nready"));
}

// A slow test: QTRAIN_PYTHON names a Python with the package openai.
TEST_F(Serve, AnswersTheClientOfOpenAi) {
  const char* python = std::getenv("QTRAIN_PYTHON");
  const std::string interpreter = python ? python : "python3";
  if (std::system((interpreter + " -c 'import openai' 2>/dev/null").c_str()) != 0)
    GTEST_SKIP() << interpreter << " has no package openai";
  const std::string folder = model();
  fs::remove(folder_ / "model/model.safetensors");
  fs::remove(folder_ / "model/config.json");
  for (const char* file : {"config.json", "model.safetensors"})
    fs::copy_file(kGoldens / "lora_llama_all" / file, folder_ / "model" / file);
  write_letter_tokenizer(folder, read_json(folder_ / "model/config.json").at("vocab_size"));
  write_file(folder_ / "model/chat_template.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}");
  Process server(launch_of(
      {.words = {"serve", "--model", folder, "--adapter", "tuned=" + (kGoldens / "lora_llama_all/adapter").string(),
                 "--port", "0", "--token", "secret"}}));
  ASSERT_TRUE(server.waits_for("quit)\n")) << server.said();
  const std::string said = server.said();
  std::smatch url;
  ASSERT_TRUE(std::regex_search(said, url, std::regex(R"(ready: (\S+))"))) << said;
  Process client({.argv = {"/usr/bin/env", interpreter, (source_folder() / "tests/e2e/openai_client.py").string(),
                           url[1].str(), letters({5, 6, 7})}});
  const Outcome outcome = client.wait();
  EXPECT_EQ(outcome.code, 0) << outcome.err << server.said();
  EXPECT_THAT(outcome.out, HasSubstr("all as expected"));
}

TEST_F(Serve, RefusesWhatWouldLetOthersIn) {
  const std::string folder = model();
  const Outcome open = qtrain({.words = {"serve", "--model", folder, "--host", "0.0.0.0", "--port", "0"}});
  EXPECT_EQ(open.code, 2);
  EXPECT_THAT(open.err, HasSubstr("--token"));
  const Outcome empty = qtrain({.words = {"serve", "--model", folder, "--host", "0.0.0.0", "--token", ""}});
  EXPECT_EQ(empty.code, 2);
}

TEST_F(Serve, RefusesNumbersAndTokensThatCannotWork) {
  const std::string folder = model();
  struct Case {
    std::vector<std::string> flags;
    std::string says;
  };
  for (const Case& c : {Case{{"--max_connections", "9223372036854775807"}, "--max_connections must be at most"},
                        {{"--max_queue", "9223372036854775807"}, "--max_queue must be at most"},
                        {{"--max_batch", "9223372036854775807"}, "--max_batch must be at most"},
                        {{"--max_queue", "0"}, "--max_queue must be at least 1"},
                        {{"--token", "secret "}, "blank at its beginning or end"},
                        {{"--token", " secret"}, "blank at its beginning or end"},
                        {{"--token", "two\nlines"}, "control character"}}) {
    std::vector<std::string> words{"serve", "--model", folder, "--port", "0"};
    words.insert(words.end(), c.flags.begin(), c.flags.end());
    const Outcome refused = qtrain({.words = words});
    EXPECT_EQ(refused.code, 2) << c.flags[0];
    EXPECT_THAT(refused.err, HasSubstr(c.says));
  }
}

TEST_F(Serve, AContextBeyondMemoryIsSaid) {
  const std::string folder = model();
  const Json small = read_json(folder_ / "model/config.json");
  Json large = small;
  large.update({{"num_hidden_layers", 1000}, {"max_position_embeddings", 1'000'000'000}});
  write_file(folder_ / "model/config.json", dump_json(large));
  const Outcome refused = qtrain({.words = {"serve", "--model", folder, "--port", "0", "--max_context", "900000000"}});
  EXPECT_EQ(refused.code, 4) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("--max_context"));
  large = small;
  large["max_position_embeddings"] = 40000;
  write_file(folder_ / "model/config.json", dump_json(large));
  Process server(launch_of({.words = {"serve", "--model", folder, "--port", "0", "--cache_tokens", "512"}}));
  ASSERT_TRUE(server.waits_for("quit)\n")) << server.said();
  EXPECT_THAT(server.said(), HasSubstr("the context is limited to 512 tokens instead of 32768"));
  server.signal(SIGTERM);
  EXPECT_EQ(server.wait().code, 0);
}

TEST_F(Serve, APortInUseIsSaid) {
  http::Server taken({});
  const int port = taken.bind("127.0.0.1", 0);
  const Outcome outcome = qtrain({.words = {"serve", "--model", model(), "--port", std::to_string(port)}});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("the port is in use"));
}

// A tokenizer with tokens for which the model has no embeddings, as after adding tokens to it.
TEST_F(Serve, TokensThatTheModelDoesNotHaveAreRefused) {
  const std::string folder = model();
  const int size = read_json(folder_ / "model/config.json").at("vocab_size");
  write_letter_tokenizer(folder_ / "model", size + 10);
  Process server(launch_of({.words = {"serve", "--model", folder, "--port", "0", "--threads", "1"}}));
  http::testing::RawClient client(port_of(server));
  const auto status_of = [&](const Json& prompt) {
    client.send(http::testing::request_text("POST /v1/completions", {},
                                            dump_json({{"model", "model"}, {"prompt", prompt}, {"max_tokens", 1}})));
    return client.fetch().status;
  };
  EXPECT_EQ(status_of(letters({5, size})), 400);
  EXPECT_EQ(status_of(Json::array({5, size})), 400);
  EXPECT_EQ(status_of(Json::array({5, size - 1})), 200);
  write_file(folder_ / "prompts.jsonl", dump_json({{"prompt", letters({5, size})}}) + "\n");
  const Outcome generated =
      qtrain({.words = {"generate", "--model", folder, "--raw", "--input", (folder_ / "prompts.jsonl").string()}});
  EXPECT_EQ(generated.code, 3) << generated.err;
  EXPECT_THAT(generated.err, HasSubstr("vocabulary"));
}

TEST_F(Serve, TwoModelsOfOneNameAreRefused) {
  const std::string folder = model();
  const fs::path adapter = folder_ / "adapters/model";
  fs::create_directories(adapter);
  for (const char* file : {"adapter_config.json", "adapter_model.safetensors"})
    fs::copy_file(kGoldens / "lora_llama_all/adapter" / file, adapter / file);
  const Outcome outcome = qtrain({.words = {"serve", "--model", folder, "--adapter", adapter.string(), "--port", "0"}});
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("NAME=DIR"));
}

TEST_F(Serve, ALimitOfThreadsIsSaid) {
  if (std::string_view(QTRAIN_SHORTAGE).empty()) GTEST_SKIP() << "not under sanitizers";
  const std::string folder = model();
  bool started = false;
  for (int most = 0; most < 10 && !started; ++most) {
    Launch launch = launch_of({.words = {"serve", "--model", folder, "--port", "0", "--threads", "2"}});
    launch.environment.insert(launch.environment.end(),
                              {fmt::format("LD_PRELOAD={}", QTRAIN_SHORTAGE), fmt::format("FEW_THREADS={}", most)});
    Process server(launch);
    started = server.waits_for("quit)\n");
    if (started) server.signal(SIGTERM);
    const Outcome outcome = server.wait();
    EXPECT_EQ(outcome.code, started ? 0 : 4) << most << outcome.err;
    EXPECT_EQ(outcome.err.find("cannot start a thread") == outcome.err.npos, started) << most << outcome.err;
  }
  EXPECT_TRUE(started);
}

TEST_F(Serve, ALimitOfOpenFilesIsSaid) {
  Launch launch = launch_of({.words = {"serve", "--model", model(), "--port", "0", "--threads", "1"}});
  launch.argv.insert(launch.argv.begin(), {"/bin/sh", "-c", "ulimit -n 50; exec \"$0\" \"$@\""});
  Process server(launch);
  const int port = port_of(server);
  EXPECT_THAT(server.said(), HasSubstr("only 2 connections at a time instead of 64"));
  std::vector<http::testing::RawClient> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back(port).send(http::testing::request_text("GET /health"));
    EXPECT_EQ(clients.back().fetch().status, i < 2 ? 200 : 503) << i;
  }
}

}  // namespace
}  // namespace qtrain::e2e
