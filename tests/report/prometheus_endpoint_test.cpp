#include <gmock/gmock.h>

#include <thread>

#include "report/prometheus.h"
#include "tests/core/http/client.h"

namespace qtrain {
namespace {

using http::testing::RawClient;
using http::testing::request_text;

struct Scrape {
  std::string request;
  int status;
};

TEST(PrometheusEndpoint, AnswersThoseWhoKnowItsName) {
  PrometheusEndpoint endpoint({.host = "127.0.0.1", .port = 0, .output_dir = "out"});
  endpoint.set({.step = 7});
  for (const Scrape& s : std::vector<Scrape>{{request_text("GET /metrics"), 200},
                                             {request_text("HEAD /metrics"), 200},
                                             {request_text("GET /metrics", {{"Host", "LOCALHOST:9400"}}), 200},
                                             {"GET /metrics HTTP/1.0\r\n\r\n", 200},
                                             {request_text("GET /"), 200},
                                             {request_text("GET /metrics", {{"Host", "rebound.example.org"}}), 403},
                                             {request_text("GET /metrics", {{"Origin", "http://example.org"}}), 403},
                                             {request_text("GET /metrics", {{"Sec-Fetch-Site", "cross-site"}}), 403},
                                             {request_text("GET /other"), 404},
                                             {request_text("POST /metrics"), 405},
                                             {request_text("POST /metrics", {}, "body"), 405},
                                             {request_text("GET /metrics", {{"Content-Length", "0x10"}}), 400},
                                             {request_text("GET /metrics", {}, "body"), 400}}) {
    RawClient client(endpoint.port());
    client.send(s.request);
    const auto reply = client.fetch(s.request.starts_with("HEAD"));
    EXPECT_EQ(reply.status, s.status) << s.request;
    if (reply.body.size() > 100) {
      EXPECT_THAT(reply.body, ::testing::HasSubstr("\nqtrain_step 7\n"));
    }
  }
}

// Connections without a request are closed soon.
TEST(PrometheusEndpoint, LeavesIdleClients) {
  PrometheusEndpoint endpoint({.host = "127.0.0.1", .port = 0, .output_dir = "out"});
  std::vector<RawClient> idle;
  for (int i = 0; i < 16; ++i) idle.emplace_back(endpoint.port());
  for (RawClient& client : idle) {
    EXPECT_EQ(client.receive_all(), "");
    EXPECT_TRUE(client.is_closed());
  }
  int status = 503;  // places become free once the server has closed these connections
  idle.clear();
  for (int i = 0; status == 503 && i < 100; ++i) {
    RawClient client(endpoint.port());
    client.send(request_text("GET /metrics"));
    status = client.fetch().status;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(status, 200);
}

}  // namespace
}  // namespace qtrain
