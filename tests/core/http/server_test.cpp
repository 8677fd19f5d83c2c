#include "core/http/server.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>
#include <optional>

#include "tests/core/http/client.h"

namespace qtrain::http {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::RawClient;
using testing::request_text;

/// Answers with the request. Bodies for /refused are not accepted; no request may reach /stolen.
class Echo final : public Handler {
 public:
  std::optional<Reply> refuse(const Request& head) const override {
    if (head.path() == "/stolen") ++stolen;
    if (head.path() == "/refused") return Reply{.status = 401, .body = "refused"};
    return {};
  }
  Reply answer(const Request& request) const override {
    const std::string said = fmt::format("{} {} {}", request.method, request.target, request.body);
    if (request.path() == "/stream")
      return {.stream = [said](const Send& send) { return send(said) && send("") && send("!"); }};
    if (request.path() == "/half")
      return {.stream = [said](const Send& send) {
        send(said);
        return false;
      }};
    return {.body = said};
  }
  Reply reply_to(const Problem& problem) const override { return {.status = problem.status(), .body = problem.what()}; }

  mutable std::atomic<int> stolen = 0;
};

class HttpServer : public ::testing::Test {
 protected:
  void start(const Limits& limits = {}) {
    server_.emplace(limits);
    port_ = server_->bind("127.0.0.1", 0);
    listening_ = std::thread([this] { server_->listen(echo_); });
  }
  void TearDown() override {
    if (!server_) return;
    server_->wind_up();
    if (listening_.joinable()) listening_.join();
  }

  Echo echo_;
  std::optional<Server> server_;
  std::thread listening_;
  int port_ = 0;
};

const std::string kHost = "Host: 127.0.0.1\r\n", kStolen = "GET /stolen HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";

/// A client's data, and the status that it gets before the connection is closed.
struct Bad {
  std::string name, text;
  int status;
};

std::vector<Bad> bad_request_lines() {
  const auto line = [](const std::string& first) { return first + "\r\n" + kHost + "\r\n"; };
  return {
      {"no version", line("GET /"), 400},
      {"two blanks", line("GET  / HTTP/1.1"), 400},
      {"a blank behind", line("GET / HTTP/1.1 "), 505},
      {"a tab between", line("GET\t/ HTTP/1.1"), 400},
      {"a blank before", line(" GET / HTTP/1.1"), 400},
      {"an empty line before", "\r\n" + line("GET / HTTP/1.1"), 400},
      {"a method that is no token", line("G(T / HTTP/1.1"), 400},
      {"no method", line("/ HTTP/1.1"), 400},
      {"another protocol", line("GET / HTTQ/1.1"), 505},
      {"in lower case", line("GET / http/1.1"), 505},
      {"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
      {"HTTP/0.9", line("GET / HTTP/0.9"), 505},
      {"HTTP/1.2", line("GET / HTTP/1.2"), 505},
      {"HTTP/1.10", line("GET / HTTP/1.10"), 505},
      {"no slash", line("GET x HTTP/1.1"), 400},
      {"a fragment", line("GET /#x HTTP/1.1"), 400},
      {"bytes that are not encoded", line("GET /\xc3\xa9 HTTP/1.1"), 400},
      {"of another host", line("GET http://example.org/ HTTP/1.1"), 400},
      {"a host alone", line("CONNECT 127.0.0.1:80 HTTP/1.1"), 400},
      {"a long address", line("GET /" + std::string(9000, 'a') + " HTTP/1.1"), 414},
      {"a long address without an end", "GET /" + std::string(9000, 'a'), 414},
      {"TLS", std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11), 400},
  };
}

std::vector<Bad> bad_headers() {
  const auto with = [](const std::string& header) { return "GET / HTTP/1.1\r\n" + kHost + header + "\r\n\r\n"; };
  std::string many;
  for (int i = 0; i < 10'000; ++i) many += "x: y\r\n";
  return {
      {"no host", "GET / HTTP/1.1\r\n\r\n", 400},
      {"two hosts", with("Host: 127.0.0.1"), 400},
      {"two hosts in another case", with("hOST: example.org"), 400},
      {"a host with a path", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400},
      {"a host with a user", "GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", 400},
      {"hosts in one header", "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 400},
      {"an empty host", "GET / HTTP/1.1\r\nHost:\r\n\r\n", 400},
      {"a port that is not a number", "GET / HTTP/1.1\r\nHost: a:80x\r\n\r\n", 400},
      {"an address that is not closed", "GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", 400},
      {"two origins", with("Origin: http://a\r\nOrigin: http://b"), 400},
      {"two tokens", with("Authorization: Bearer a\r\nAuthorization: Bearer b"), 400},
      {"a blank before the colon", with("X : y"), 400},
      {"a tab before the colon", with("X\t: y"), 400},
      {"no colon", with("X"), 400},
      {"no name", with(": y"), 400},
      {"a second line", with("X: y\r\n z"), 400},
      {"a second line with a tab", with("X: y\r\n\tz"), 400},
      {"a second line at once", "GET / HTTP/1.1\r\n X: y\r\n" + kHost + "\r\n", 400},
      {"a line feed alone", with("X: y\nZ: z"), 400},
      {"line feeds alone", "GET / HTTP/1.1\nHost: 127.0.0.1\n\n", 400},
      {"a carriage return alone", with("X: y\rZ: z"), 400},
      {"a carriage return too many", with("X: y\r"), 400},
      {"a null", with(std::string("X: a\0b", 6)), 400},
      {"a null in a name", with(std::string("X\0: a", 5)), 400},
      {"an escape", with("X: \x1b[31m"), 400},
      {"a control character", with("X: \x7f"), 400},
      {"a name that is no token", with("X(y): z"), 400},
      {"many headers", "GET / HTTP/1.1\r\n" + kHost + many + "\r\n", 431},
      {"a long header", with("X: " + std::string(70'000, 'y')), 431},
      {"a long header without an end", "GET / HTTP/1.1\r\nX: " + std::string(70'000, 'y'), 431},
      {"long headers",
       "GET / HTTP/1.1\r\n" + kHost + "X: " + std::string(40'000, 'y') + "\r\nZ: " + std::string(40'000, 'y') +
           "\r\n\r\n",
       431},
  };
}

std::vector<Bad> bad_lengths() {
  const auto post = [](const std::string& headers) { return "POST / HTTP/1.1\r\n" + kHost + headers + "\r\n"; };
  std::vector<Bad> all{
      {"no length", post(""), 411},
      {"two lengths", post("Content-Length: 5\r\nContent-Length: 6\r\n"), 400},
      {"the same length twice", post("Content-Length: 5\r\nContent-Length: 5\r\n"), 400},
      {"a length and chunks", post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), 400},
      {"chunks and a length", post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"), 400},
      {"chunks twice", post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400},
      {"a large length", post("Content-Length: 9000000\r\n"), 413},
      {"a length beyond numbers", post("Content-Length: 99999999999999999999999999\r\n"), 400},
      {"chunks of HTTP/1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {"HTTP/1.0 without a length", "POST / HTTP/1.0\r\n\r\n", 411},
      {"another expectation", post("Content-Length: 5\r\nExpect: 200-ok\r\n"), 417},
      {"a body that nobody reads",
       "POST /refused HTTP/1.1\r\n" + kHost + "Content-Length: " + std::to_string(kStolen.size()) + "\r\n\r\n", 401},
      {"a large body that nobody reads", "POST /refused HTTP/1.1\r\n" + kHost + "Content-Length: 9000000\r\n\r\n", 401},
      {"chunks that nobody reads", "POST /refused HTTP/1.1\r\n" + kHost + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
       401},
  };
  for (const char* length :
       {"0x10", "+5", "-5", "5, 5", "5,5", "5 5", "5;", "5.0", "1e3", "\"5\"", "five", "", "0x", "5\t6"})
    all.push_back({fmt::format("length {}", length), post(fmt::format("Content-Length: {}\r\n", length)), 400});
  for (const char* coding : {"gzip", "identity", "chunked, gzip", "gzip, chunked", "chunked, chunked", "xchunked",
                             "chunked;q=1", "chunke d", "\"chunked\"", ",chunked", ""})
    all.push_back({fmt::format("coding {}", coding), post(fmt::format("Transfer-Encoding: {}\r\n", coding)), 501});
  for (const char* method : {"GET", "HEAD", "OPTIONS", "TRACE"}) {
    all.push_back({fmt::format("{} with a body", method),
                   fmt::format("{} / HTTP/1.1\r\n{}Content-Length: {}\r\n\r\n", method, kHost, kStolen.size()), 400});
    all.push_back({fmt::format("{} with chunks", method),
                   fmt::format("{} / HTTP/1.1\r\n{}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", method, kHost), 400});
  }
  return all;
}

std::vector<Bad> bad_chunks() {
  std::vector<Bad> all;
  const auto add = [&](const std::string& name, const std::string& body, int status = 400) {
    all.push_back({name, "POST / HTTP/1.1\r\n" + kHost + "Transfer-Encoding: chunked\r\n\r\n" + body, status});
  };
  add("no size", "\r\nabc\r\n0\r\n\r\n");
  add("a size that is not a number", "xyz\r\nabc\r\n0\r\n\r\n");
  add("a size with a sign", "+3\r\nabc\r\n0\r\n\r\n");
  add("a negative size", "-3\r\nabc\r\n0\r\n\r\n");
  add("a size with a prefix", "0x3\r\nabc\r\n0\r\n\r\n");
  add("a blank before the size", " 3\r\nabc\r\n0\r\n\r\n");
  add("a blank behind the size", "3 \r\nabc\r\n0\r\n\r\n");
  add("a line feed alone behind the size", "3\nabc\r\n0\r\n\r\n");
  add("a carriage return alone behind the size", "3\rabc\r\n0\r\n\r\n");
  add("no end of a chunk", "3\r\nabcd\r\n0\r\n\r\n");
  add("a line feed alone behind a chunk", "3\r\nabc\n0\r\n\r\n");
  add("an extension", "3;x=y\r\nabc\r\n0\r\n\r\n");
  add("an extension of the last chunk", "3\r\nabc\r\n0;x=y\r\n\r\n");
  add("an extension with a line feed", "3;x\ny\r\nabc\r\n0\r\n\r\n");
  add("a size beyond numbers", "fffffffffffffffff\r\nabc\r\n0\r\n\r\n");
  add("a size with many zeros", std::string(14, '0') + "123\r\nabc\r\n0\r\n\r\n");
  add("an end with many zeros", "3\r\nabc\r\n" + std::string(17, '0') + "\r\n\r\n");
  add("a size with a page of zeros", std::string(4096, '0') + "3\r\nabc\r\n0\r\n\r\n");
  add("a large chunk", "fffffff\r\nabc", 413);
  add("large chunks", "800000\r\n" + std::string(0x800000, 'x') + "\r\n1\r\nx", 413);
  add("a trailer without a colon", "0\r\nX y\r\n\r\n");
  add("a trailer of two lines", "0\r\nX: y\r\n z\r\n\r\n");
  add("a trailer whose first line is empty", "0\r\nX:\r\n\tz\r\n\r\n");
  add("a trailer whose second line is empty", "0\r\nX: y\r\n \r\n\r\n");
  add("a trailer of two empty lines", "0\r\nX:\r\n \r\n\r\n");
  add("a second trailer of two lines", "3\r\nabc\r\n0\r\nX: y\r\nZ: y\r\n z\r\n\r\n");
  add("a length behind the chunks", "0\r\nContent-Length: 5\r\n\r\n");
  add("large trailers", "0\r\nX: " + std::string(70'000, 'y'), 431);
  add("a long size", std::string(70'000, '0'), 431);
  return all;
}

class HttpServerOf : public HttpServer, public ::testing::WithParamInterface<std::vector<Bad> (*)()> {};

// The client gets one reply, the connection is closed, and later data gets no answer.
TEST_P(HttpServerOf, ABadRequestEndsTheConnection) {
  start();
  for (const Bad& bad : GetParam()()) {
    RawClient client(port_);
    client.send(bad.text + kStolen);
    const std::string reply = client.receive_all();
    EXPECT_TRUE(client.is_closed()) << bad.name;
    EXPECT_TRUE(reply.starts_with(fmt::format("HTTP/1.1 {} ", bad.status))) << bad.name << ":\n"
                                                                            << reply.substr(0, 300);
    EXPECT_THAT(reply, HasSubstr("Connection: close\r\n")) << bad.name;
    EXPECT_EQ(reply.find("HTTP/1.1", 8), std::string::npos) << bad.name << ":\n" << reply.substr(0, 600);
    EXPECT_EQ(echo_.stolen, 0) << bad.name;
  }
}
INSTANTIATE_TEST_SUITE_P(All, HttpServerOf, ::testing::Values(bad_request_lines, bad_headers, bad_lengths, bad_chunks));

TEST_F(HttpServer, AnswersOneRequestAfterTheOther) {
  start();
  RawClient client(port_);
  client.send(
      request_text("GET /a?b=c") + request_text("POST /d", {}, "body") +
      "POST /e HTTP/1.1\r\nhOsT: LOCALHOST:80\r\nTransfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\n0002\r\nde\r\n0\r\n"
      "Host: example.org\r\nX: y\r\n\r\n" +
      request_text("HEAD /f") + request_text("GET /g", {{"Content-Length", "0"}}) +
      request_text("GET http://127.0.0.1/h") + request_text("GET /stream"));
  for (const char* want : {"GET /a?b=c ", "POST /d body", "POST /e abcde"}) EXPECT_EQ(client.fetch().body, want);
  EXPECT_EQ(client.fetch(true).header("Content-Length"), "8");
  for (const char* want : {"GET /g ", "GET /h ", "GET /stream !"}) EXPECT_EQ(client.fetch().body, want);
}

// A client that sends HEAD expects no body, and would take one for the beginning of the next answer.
TEST_F(HttpServer, NoAnswerToHeadHasABody) {
  start();
  for (const auto& [text, status] : {std::pair(std::string("HEAD / HTTP/1.1\r\n\r\n"), 400),
                                     {"HEAD / HTTP/1.1\r\n" + kHost + "Content-Length: 3\r\n\r\nabc", 400},
                                     {"HEAD / HTTP/1.1\r\n" + kHost + "Expect: more\r\n\r\n", 417},
                                     {"HEAD / HTTP/1.1\r\n" + kHost + kHost + "\r\n", 400},
                                     {"HEAD / HTTP/1.1\r\n" + kHost + "X: \x01\r\n\r\n", 400},
                                     {"HEAD / HTTP/1.1\r\n" + kHost + "X: a\r\n b\r\n\r\n", 400},
                                     {"HEAD / HTTP/1.1\n\n", 400},
                                     {"HEAD /\r\n\r\n", 400},
                                     {"HEAD / HTTP/2.0\r\n\r\n", 505},
                                     {"HEAD /" + std::string(9000, 'a') + " HTTP/1.1\r\n\r\n", 414},
                                     {"HEAD / HTTP/1.1\r\nX: " + std::string(70'000, 'a') + "\r\n\r\n", 431},
                                     {"HEAD /refused HTTP/1.1\r\n" + kHost + "\r\n", 401}}) {
    SCOPED_TRACE(text);
    RawClient client(port_);
    client.send(text);
    const auto reply = client.fetch(true);
    EXPECT_EQ(reply.status, status);
    if (status == 401) continue;
    EXPECT_EQ(reply.header("Connection"), "close");
    EXPECT_EQ(client.receive_all(), "") << "nothing follows the head";
  }
}

// Otherwise a proxy would send another request, which nobody reads.
TEST_F(HttpServer, NorDoesAnAnswerToHeadThatIsTurnedAway) {
  start({.connections = 1});
  RawClient first(port_);
  first.send(request_text("GET /a"));
  EXPECT_EQ(first.fetch().status, 200);
  for (const std::string& text :
       {request_text("HEAD /a"), std::string("HEAD /a HTTP/1.1\r\n"), std::string("HEAD  /a HTTP/9\r\n\r\n")}) {
    RawClient client(port_);
    client.send(text);
    const std::string answer = client.receive_all();
    EXPECT_THAT(answer, HasSubstr("HTTP/1.1 503 ")) << text;
    EXPECT_TRUE(answer.ends_with("\r\n\r\n")) << text << answer;
  }
}

TEST_F(HttpServer, TheLastAnswerOfAConnectionSaysSo) {
  start();
  RawClient client(port_);
  for (int i = 1; i <= 10'000; ++i) {
    client.send(request_text("GET /a"));
    const auto reply = client.fetch();
    ASSERT_EQ(reply.status, 200) << i;
    ASSERT_EQ(reply.header("Connection"), i < 10'000 ? "" : "close") << i;
  }
  EXPECT_EQ(client.receive_all(), "");
  EXPECT_TRUE(client.is_closed());
}

TEST_F(HttpServer, ARequestMayComeByteByByte) {
  start();
  RawClient client(port_);
  const std::string chunked = "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const char c : chunked + "3\r\nabc\r\n0\r\nX: y\r\n\r\n" + chunked + "0\r\n\r\n" + request_text("GET /b"))
    client.send(std::string(1, c));
  for (const char* want : {"POST /a abc", "POST /a ", "GET /b "}) EXPECT_EQ(client.fetch().body, want);
}

TEST_F(HttpServer, ARefusalWithoutABodyKeepsTheConnection) {
  start();
  RawClient client(port_);
  client.send(request_text("GET /refused") + request_text("GET /a"));
  EXPECT_EQ(client.fetch().status, 401);
  EXPECT_EQ(client.fetch().body, "GET /a ");
}

TEST_F(HttpServer, OldClientsGetNoChunks) {
  start();
  RawClient client(port_);
  client.send("GET /stream HTTP/1.0\r\n\r\n");
  const std::string reply = client.receive_all();
  EXPECT_THAT(reply, Not(HasSubstr("chunked")));
  EXPECT_TRUE(reply.ends_with("\r\n\r\nGET /stream !")) << reply;
  EXPECT_TRUE(client.is_closed());
}

// A client that receives half of an answer must see that it is incomplete.
TEST_F(HttpServer, AnAnswerThatIsCutShortHasNoLastChunk) {
  start();
  RawClient whole(port_), half(port_);
  whole.send("GET /stream HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(whole.receive_all(), ::testing::EndsWith("\r\n0\r\n\r\n"));
  half.send(request_text("GET /half"));
  EXPECT_THAT(half.receive_all(), AllOf(HasSubstr("GET /half"), Not(HasSubstr("\r\n0\r\n\r\n"))));
  EXPECT_TRUE(half.is_closed());
}

TEST_F(HttpServer, AClientThatAsksToCloseIsLeft) {
  start();
  for (const char* connection : {"close", "Close", "keep-alive, close"}) {
    RawClient client(port_);
    client.send(request_text("GET /a", {{"Connection", connection}}) + request_text("GET /stolen"));
    EXPECT_TRUE(client.receive_all().ends_with("\r\n\r\nGET /a ")) << connection;
  }
  EXPECT_EQ(echo_.stolen, 0);
}

TEST_F(HttpServer, SaysThatItWaitsForABody) {
  start();
  RawClient client(port_);
  client.send("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-Continue\r\n\r\n");
  EXPECT_EQ(client.fetch().status, 100);
  client.send("body");
  EXPECT_EQ(client.fetch().body, "POST /a body");
  RawClient refused(port_);
  refused.send("POST /refused HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(refused.fetch().status, 401);
}

TEST_F(HttpServer, SlowClientsAreTold) {
  start({.header_time = milliseconds(200), .body_time = milliseconds(200), .idle_time = milliseconds(200)});
  for (const std::string text : {"GET / HT", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc",
                                 "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc"}) {
    RawClient client(port_);
    client.send(text);
    EXPECT_THAT(client.receive_all(), HasSubstr("HTTP/1.1 408 ")) << text;
  }
  // A connection without a request gets no 408: a proxy would take it for the answer to its next request.
  RawClient silent(port_), idle(port_);
  idle.send(request_text("GET /a"));
  EXPECT_EQ(idle.fetch().status, 200);
  EXPECT_EQ(idle.receive_all() + silent.receive_all(), "");
  EXPECT_TRUE(idle.is_closed() && silent.is_closed());
}

TEST_F(HttpServer, TurnsAwayConnectionsBeyondItsLimit) {
  start({.connections = 2});
  RawClient first(port_), second(port_);
  for (RawClient* client : {&first, &second}) {
    client->send(request_text("GET /a"));
    EXPECT_EQ(client->fetch().status, 200);
  }
  EXPECT_EQ(RawClient(port_).fetch().status, 503);  // before it has sent anything
  for (int i = 0; i < 40; ++i) {
    RawClient turned_away(port_);
    turned_away.send(i == 0 ? "G(T / HTTP/1.1\r\n\r\n" : request_text("GET /a"));
    EXPECT_EQ(turned_away.fetch().status, 503) << i;
  }
  first.close();
  int status = 503;
  for (int i = 0; status == 503 && i < 100; ++i) {
    RawClient third(port_);
    third.send(request_text("GET /a"));
    status = third.fetch().status;
  }
  EXPECT_EQ(status, 200);
}

// If the listen queue is too short, connections are dropped, and clients retry for minutes, because nobody accepts
// them.
TEST_F(HttpServer, ABurstOfClientsFitsItsQueue) {
  constexpr int kClients = 200;
  server_.emplace(Limits{.connections = kClients});
  port_ = server_->bind("127.0.0.1", 0);
  const auto begin = std::chrono::steady_clock::now();
  std::vector<RawClient> clients;
  for (int i = 0; i < kClients; ++i) clients.emplace_back(port_).send(request_text("GET /a"));
  listening_ = std::thread([this] { server_->listen(echo_); });
  for (RawClient& client : clients) EXPECT_EQ(client.fetch().status, 200);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

TEST_F(HttpServer, EndsSoonWhateverClientsDo) {
  start();
  RawClient idle(port_), begun(port_), body(port_);
  begun.send("GET /a HT");
  body.send("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc");
  RawClient head_drips(port_), body_drips(port_);
  head_drips.send("GET /a HTTP/1.1\r\nX: ");
  body_drips.send("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n");
  std::atomic<bool> over = false;
  std::thread drips([&] {
    for (; !over; std::this_thread::sleep_for(milliseconds(20))) {
      head_drips.send("a");
      body_drips.send("a");
    }
  });
  std::this_thread::sleep_for(milliseconds(50));
  const auto begin = std::chrono::steady_clock::now();
  server_->wind_up();
  listening_.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(2000));
  over = true;
  drips.join();
}

TEST_F(HttpServer, AnAddressThatIsTakenIsAnError) {
  start();
  Server second({});
  EXPECT_THROW(second.bind("127.0.0.1", port_), std::system_error);
  EXPECT_THROW(second.bind("192.0.2.1", 0), std::system_error);
}

}  // namespace
}  // namespace qtrain::http
