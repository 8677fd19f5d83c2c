// Which connections a server answers, and what becomes of one whose thread fails.
#include <gtest/gtest.h>

#include <new>
#include <optional>
#include <stdexcept>
#include <thread>

#include "core/http/server.h"
#include "tests/core/http/client.h"

namespace qtrain::http {
namespace {

using testing::RawClient;
using testing::request_text;

/// Answers everything, but has no memory left where the path says so.
class Forgetful final : public Handler {
 public:
  std::optional<Reply> refuse(const Request& head) const override {
    if (head.path() == "/refuse") throw std::bad_alloc();
    return {};
  }
  Reply answer(const Request& request) const override {
    if (request.path() == "/answer") throw std::bad_alloc();
    if (request.path() == "/problem") throw Problem(400, "no memory for the reply to it");
    if (request.path() == "/stream") return {.stream = [](const Send&) -> bool { throw std::bad_alloc(); }};
    return {.body = "here"};
  }
  Reply reply_to(const Problem& problem) const override {
    if (problem.status() == 400) throw std::bad_alloc();
    return {.status = problem.status(), .body = problem.what()};
  }
};

class Places : public ::testing::Test {
 protected:
  void start(std::int64_t connections) {
    server_.emplace(Limits{.connections = connections});
    port_ = server_->bind("127.0.0.1", 0);
    listening_ = std::thread([this] { server_->listen(handler_); });
  }
  void stop() {
    server_->wind_up();
    listening_.join();
  }
  int status_of(const std::string& line, const std::vector<Header>& headers = {}) {
    RawClient client(port_);
    client.send(request_text(line, headers));
    return client.fetch().status;
  }

  Forgetful handler_;
  std::optional<Server> server_;
  std::thread listening_;
  int port_ = 0;
};

TEST_F(Places, OfClosedConnectionsAreFreeForTheNextOnes) {
  const std::vector<Header> kept, closed{{"Connection", "close"}};
  for (const std::int64_t connections : {1, 2})
    for (const auto& headers : {kept, closed}) {
      start(connections);
      for (int i = 0; i < 40; ++i) ASSERT_EQ(status_of("GET /", headers), 200) << i;
      stop();
    }
}

TEST_F(Places, OfOpenConnectionsAreTaken) {
  start(2);
  RawClient silent(port_), idle(port_);
  idle.send(request_text("GET /"));
  EXPECT_EQ(idle.fetch().status, 200);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(status_of("GET /"), 503);
  idle.close();
  EXPECT_EQ(status_of("GET /"), 200);
  silent.close();
  stop();
}

TEST_F(Places, AreFreeAgainAfterAFailure) {
  start(3);
  for (const char* line : {"GET /refuse", "GET /answer", "GET /problem", "GET /stream", "G(T /"}) {
    RawClient client(port_);
    client.send(request_text(line));
    client.receive_all();
    EXPECT_TRUE(client.is_closed()) << line;
    client.close();
    EXPECT_EQ(status_of("GET /"), 200) << line;
  }
  stop();
}

}  // namespace
}  // namespace qtrain::http
