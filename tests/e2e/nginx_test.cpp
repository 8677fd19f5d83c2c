// The server behind nginx, whose connections many clients share: what one client sends never becomes part of another's
// request or answer.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <regex>

#include "core/http/server.h"
#include "core/os/file.h"
#include "tests/core/http/client.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using http::testing::RawClient;
using http::testing::request_text;
using ::testing::HasSubstr;

constexpr const char* kNginx = "/usr/sbin/nginx";

class BehindNginx : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::access(kNginx, X_OK) != 0) GTEST_SKIP() << "nginx is not installed (scripts/install_deps.sh --dev)";
    fs::create_directories(folder_ / "model");
    for (const char* file : {"config.json", "model.safetensors"})
      fs::copy_file(kGoldens / "llama_gqa3_tied" / file, folder_ / "model" / file);
    write_letter_tokenizer(folder_ / "model", read_json(folder_ / "model/config.json").at("vocab_size"));
    server_.emplace(launch_of({.words = {"serve", "--model", (folder_ / "model").string(), "--port", "0", "--token",
                                         "secret", "--threads", "1"}}));
    ASSERT_TRUE(server_->waits_for("quit)\n")) << server_->said();
    const std::string said = server_->said();
    std::smatch url;
    ASSERT_TRUE(std::regex_search(said, url, std::regex(R"(ready: http://(127\.0\.0\.1:\d+) )"))) << said;
    start_nginx(url[1]);
  }
  // Starts nginx with a single connection to the server, which all clients share.
  void start_nginx(const std::string& to) {
    port_ = http::Server({}).bind("127.0.0.1", 0);
    const std::string folder = folder_.path().string();
    write_file(folder_ / "nginx.conf",
               fmt::format("daemon off;\nworker_processes 1;\n{}pid {}/pid;\nerror_log {}/error.log;\n"
                           "events {{ worker_connections 64; }}\nhttp {{\n  access_log off;\n"
                           "  client_body_temp_path {}/b;\n  proxy_temp_path {}/p;\n  fastcgi_temp_path {}/f;\n"
                           "  uwsgi_temp_path {}/u;\n  scgi_temp_path {}/s;\n"
                           "  upstream served {{ server {} max_fails=0; keepalive 1; }}\n"
                           "  server {{\n    listen 127.0.0.1:{};\n    large_client_header_buffers 4 64k;\n"
                           "    location / {{\n      proxy_pass http://served;\n      proxy_http_version 1.1;\n"
                           "      proxy_set_header Connection \"\";\n    }}\n  }}\n}}\n",
                           ::geteuid() == 0 ? "user root;\n" : "", folder, folder, folder, folder, folder, folder,
                           folder, to, port_));
    nginx_.emplace(Launch{.argv = {kNginx, "-p", folder, "-c", (folder_ / "nginx.conf").string(), "-e",
                                   (folder_ / "start.log").string()}});
    for (int i = 0; i < 200 && !listens(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(25));
    ASSERT_TRUE(listens()) << read_text(folder_ / "error.log") << nginx_->said();
  }
  bool listens() const {
    std::error_code none;
    return fs::file_size(folder_ / "pid", none) > 0 && !none;
  }
  http::testing::Fetched user_asks(const std::string& prompt) const {
    RawClient user(port_);
    const Json body{{"model", "model"}, {"prompt", prompt}, {"max_tokens", 3}, {"temperature", 0}};
    user.send(request_text("POST /v1/completions", {{"Authorization", "Bearer secret"}}, dump_json(body)));
    return user.fetch();
  }

  TempFolder folder_;
  std::optional<Process> server_, nginx_;
  int port_ = 0;
};

// Each leaves unread data in a server that answers before it has read everything, or that reads less than nginx has
// sent.
std::vector<std::string> attacks() {
  const std::string swallow = "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ";
  const std::string take =
      "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer wrong\r\nContent-Length: 800\r\n\r\n{";
  std::vector<std::string> all;
  for (const std::string& rest : {swallow, take}) {
    for (const char* line : {"GET /health", "GET /v1/models", "OPTIONS /v1/models", "POST /v1/nothing", "PUT /health",
                             "DELETE /", "POST /v1/completions", "POST /health"})
      all.push_back(request_text(line, {{"Content-Length", std::to_string(rest.size())}}) + rest);
    const std::string chunk = fmt::format("{:x}\r\n{}\r\n0\r\n\r\n", rest.size(), rest);
    for (const char* line : {"GET /health", "POST /v1/completions", "POST /health"})
      all.push_back(fmt::format("{} HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n", line) + chunk);
    all.push_back("POST /" + std::string(9000, 'a') +
                  " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: " + std::to_string(rest.size()) + "\r\n\r\n" + rest);
    all.push_back("POST /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + std::string(12000, 'a') +
                  "\r\nContent-Length: " + std::to_string(rest.size()) + "\r\n\r\n" + rest);
    all.push_back("POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nExpect: x\r\nContent-Length: " +
                  std::to_string(rest.size()) + "\r\n\r\n" + rest);
  }
  return all;
}

// The text of an answer, or whatever came instead.
std::string answer_in(const std::string& body) {
  const Json json = Json::parse(body, nullptr, false);
  return json.is_object() && json.contains("choices") ? json.at("choices")[0].at("text").get<std::string>() : body;
}

TEST_F(BehindNginx, NobodyGetsTheAnswerOfAnother) {
  const auto first = user_asks(letters({5, 6}));
  ASSERT_EQ(first.status, 200) << first.body << server_->said();
  const std::string want = answer_in(first.body);
  for (const std::string& attack : attacks())
    for (int round = 0; round < 3; ++round) {
      RawClient stranger(port_);
      stranger.send(attack);
      const auto refused = stranger.fetch();
      const auto got = user_asks(letters({5, 6}));
      stranger.send(request_text("GET /health"));
      const std::string rest = stranger.receive_some(std::chrono::milliseconds(30));
      ASSERT_EQ(got.status, 200) << attack.substr(0, 300) << "\n" << refused.status << got.body;
      ASSERT_EQ(answer_in(got.body), want) << attack.substr(0, 300);
      EXPECT_EQ(rest.find("choices"), std::string::npos) << attack.substr(0, 300) << rest;
    }
}

}  // namespace
}  // namespace qtrain::e2e
