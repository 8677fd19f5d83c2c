// The server as a program: how it begins, what it refuses, how it ends. Its answers: tests/app/serve.
#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>

#include <cstdlib>
#include <regex>

#include "core/descriptor.h"
#include "core/file.h"
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

sockaddr_in loopback(int port) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(static_cast<std::uint16_t>(port));
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return a;
}

std::string get(int port, const std::string& path) {
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in to = loopback(port);
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  const std::string request = "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  EXPECT_EQ(::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL), static_cast<ssize_t>(request.size()));
  std::string out;
  char bytes[4096];
  for (ssize_t n; (n = ::recv(socket.get(), bytes, sizeof bytes, 0)) > 0;)
    out.append(bytes, static_cast<std::size_t>(n));
  return out;
}

TEST_F(Serve, SaysWhereItIsAndEndsWithASignal) {
  for (const int number : {SIGTERM, SIGINT}) {
    Process server(launch_of({.words = {"serve", "--model", model(), "--port", "0", "--json", "--threads", "1"}}));
    ASSERT_TRUE(server.waits_for("ends)\n")) << server.said();
    const std::string said = server.said();
    std::smatch url;
    ASSERT_TRUE(std::regex_search(said, url, std::regex(R"(ready: http://127\.0\.0\.1:(\d+) \(model;)"))) << said;
    const int port = std::stoi(url[1]);
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

// On the slow list: QTRAIN_PYTHON names a Python with the package openai.
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
  ASSERT_TRUE(server.waits_for("ends)\n")) << server.said();
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
  ASSERT_TRUE(server.waits_for("ends)\n")) << server.said();
  EXPECT_THAT(server.said(), HasSubstr("the context is 512 tokens instead of 32768"));
  server.signal(SIGTERM);
  EXPECT_EQ(server.wait().code, 0);
}

TEST_F(Serve, APortInUseIsSaid) {
  const Descriptor taken(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at = loopback(0);
  socklen_t size = sizeof at;
  ASSERT_EQ(::bind(taken.get(), reinterpret_cast<sockaddr*>(&at), size), 0);
  ASSERT_EQ(::listen(taken.get(), 1), 0);
  ASSERT_EQ(::getsockname(taken.get(), reinterpret_cast<sockaddr*>(&at), &size), 0);
  const Outcome outcome =
      qtrain({.words = {"serve", "--model", model(), "--port", std::to_string(ntohs(at.sin_port))}});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("the port is in use"));
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

}  // namespace
}  // namespace qtrain::e2e
