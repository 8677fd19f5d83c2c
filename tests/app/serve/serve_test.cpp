#include "tests/app/serve/server_here.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace qtrain::serve {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

TEST_F(Serve, ListsTheModelAndItsAdapters) {
  start({});
  const Json models = Json::parse(get("/v1/models").body);
  EXPECT_EQ(models["object"], "list");
  ASSERT_THAT(models["data"], SizeIs(2));
  EXPECT_EQ(models["data"][0]["id"], "base");
  EXPECT_EQ(models["data"][1]["id"], "mine");
  EXPECT_EQ(models["data"][1]["parent"], "base");
  EXPECT_EQ(Json::parse(get("/health").body)["status"], "ok");
}

TEST_F(Serve, AnswersAreThoseOfGenerate) {
  start({});
  for (const std::optional<std::string>& adapter : {std::optional<std::string>{}, {(folder_ / "tuned").string()}}) {
    Ctx ctx({}, MatmulPrecision::storage, 2);
    Answerer answerer(ctx, declare_answer_model(ctx, {.model = (folder_ / "base").string(), .adapter = adapter}),
                      *log_);
    const Json messages = Json::array({{{"role", "user"}, {"content", "Where is it?"}}});
    const auto prompt = encode_chat(answerer.model().text, {.messages = messages});
    const char* model = adapter ? "mine" : "base";
    AnswerOptions options{.sampling = {.greedy = true}, .max_new_tokens = 12};
    EXPECT_EQ(answer(chat(model, "Where is it?")), answerer.answer({prompt}, options).front().completion);
    options.sampling = {.temperature = 0.7, .top_p = 0.9, .seed = 5};
    EXPECT_EQ(answer(chat(model, "Where is it?", {{"temperature", 0.7}, {"top_p", 0.9}, {"seed", 5}})),
              answerer.answer({prompt}, options).front().completion);
  }
  EXPECT_NE(answer(chat("base", "Where is it?")), answer(chat("mine", "Where is it?")));
}

TEST_F(Serve, AnswersAreTheSameAloneAndTogether) {
  start({});
  std::vector<std::string> alone(6), together(6);
  const auto body = [](std::size_t i) { return chat(i % 2 ? "base" : "mine", std::string(3 * i + 1, 'x')); };
  for (std::size_t i = 0; i < alone.size(); ++i) alone[i] = answer(body(i));
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < together.size(); ++i) threads.emplace_back([&, i] { together[i] = answer(body(i)); });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(together, alone);
}

TEST_F(Serve, DocumentsHaveTheFormOfTheApi) {
  start({});
  const Reply r = post("/v1/chat/completions", chat("base", "a", {{"n", 2}, {"seed", 1}, {"temperature", 1}}));
  ASSERT_EQ(r.status, 200) << r.body;
  EXPECT_EQ(r.body["object"], "chat.completion");
  EXPECT_EQ(r.body["model"], "base");
  ASSERT_THAT(r.body["choices"], SizeIs(2));
  EXPECT_EQ(r.body["choices"][1]["index"], 1);
  EXPECT_EQ(r.body["choices"][1]["finish_reason"], "length");
  EXPECT_EQ(r.body["choices"][1]["message"]["role"], "assistant");
  EXPECT_NE(r.body["choices"][0]["message"], r.body["choices"][1]["message"]);
  EXPECT_EQ(r.body["usage"]["completion_tokens"], 24);
  EXPECT_EQ(r.body["usage"]["total_tokens"], 24 + r.body["usage"]["prompt_tokens"].get<int>());

  const Reply raw =
      post("/v1/completions",
           {{"model", "base"}, {"prompt", {"one", "two"}}, {"max_tokens", 3}, {"temperature", 0}, {"logprobs", 2}});
  ASSERT_EQ(raw.status, 200) << raw.body;
  ASSERT_THAT(raw.body["choices"], SizeIs(2));
  const Json& logprobs = raw.body["choices"][1]["logprobs"];
  EXPECT_THAT(logprobs["tokens"], SizeIs(3));
  std::string text;
  for (const Json& token : logprobs["tokens"]) text += token;
  EXPECT_EQ(raw.body["choices"][1]["text"], text);
  EXPECT_THAT(logprobs["top_logprobs"][0], SizeIs(2));
  EXPECT_EQ(logprobs["text_offset"][0], 0);
}

TEST_F(Serve, AStreamIsTheSameAnswerInPieces) {
  start({});
  const Json body = chat("base", "a", {{"logprobs", true}, {"top_logprobs", 2}});
  const Reply whole = post("/v1/chat/completions", body);
  Json streamed = body;
  streamed.update({{"stream", true}, {"stream_options", {{"include_usage", true}}}});
  const std::vector<Json> chunks = events("/v1/chat/completions", streamed);
  ASSERT_GT(chunks.size(), 4u);
  EXPECT_EQ(chunks.front()["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(chunks.back(), "[DONE]");
  EXPECT_EQ(chunks[chunks.size() - 2]["usage"], whole.body["usage"]);
  EXPECT_THAT(chunks[chunks.size() - 2]["choices"], IsEmpty());
  EXPECT_EQ(chunks[chunks.size() - 3]["choices"][0]["finish_reason"], "length");
  std::string text;
  Json logprobs = Json::array();
  for (std::size_t i = 0; i + 2 < chunks.size(); ++i) {
    const Json& choice = chunks[i]["choices"][0];
    text += choice["delta"].value("content", "");
    if (choice["logprobs"].is_object())
      for (const Json& token : choice["logprobs"]["content"]) logprobs.push_back(token);
  }
  EXPECT_EQ(text, whole.body["choices"][0]["message"]["content"]);
  EXPECT_EQ(logprobs, whole.body["choices"][0]["logprobs"]["content"]);
  EXPECT_THAT(logprobs, SizeIs(12));
}

TEST_F(Serve, ChoosesTokensOfTheTokenizer) {
  start({});
  const Json body = chat("base", "a", {{"logprobs", true}, {"top_logprobs", 20}, {"temperature", 5}, {"seed", 1}});
  const Reply r = post("/v1/chat/completions", body);
  ASSERT_EQ(r.status, 200) << r.body;
  for (const Json& token : r.body["choices"][0]["logprobs"]["content"])
    for (const Json& candidate : token["top_logprobs"]) EXPECT_NE(candidate["token"], "") << token;
}

TEST_F(Serve, StopTextsEndAnAnswer) {
  start({});
  const std::string all = answer(chat("base", "a")), stop = all.substr(all.size() / 2, 2);
  EXPECT_EQ(answer(chat("base", "a", {{"stop", stop}})), all.substr(0, all.find(stop)));
}

TEST_F(Serve, SaysWhatIsWrongWithARequest) {
  start({});
  struct Case {
    Json body;
    int status;
    std::string says;
  };
  const std::vector<Case> cases{
      {chat("none", "a"), 404, "base, mine"},
      {chat("base", "a", {{"max_token", 3}}), 400, "max_tokens"},
      {chat("base", "a", {{"temperature", -1}}), 400, "temperature"},
      {chat("base", "a", {{"temperature", "hot"}}), 400, "temperature"},
      {chat("base", "a", {{"seed", 1.5}}), 400, "seed"},
      {chat("base", "a", {{"n", 0}}), 400, "\"n\""},
      {chat("base", "a", {{"n", 1000}}), 400, "\"n\""},
      {chat("base", "a", {{"stop", {1}}}), 400, "stop"},
      {chat("base", "a", {{"stop", {"b", std::string(1025, 'a')}}}), 400, "stop"},
      {chat("base", "a", {{"top_logprobs", 2}}), 400, "logprobs"},
      {chat("base", "a", {{"frequency_penalty", 0.5}}), 400, "not supported"},
      {chat("base", "a", {{"stream_options", {{"include_usage", true}}}}), 400, "stream"},
      {chat("base", "a", {{"messages", Json::array()}}), 400, "messages"},
      {chat("base", "a", {{"messages", {{{"role", "user"}, {"content", {{{"type", "image_url"}}}}}}}}), 400, "images"},
      {chat("base", "a", {{"tool_choice", "required"}}), 400, "tool_choice"},
      {chat("base", "a", {{"tools", {{{"type", "function"}, {"function", {{"name", "f"}}}}}}}), 400, "the tools"},
      {chat("base", "a",
            {{"messages",
              {{{"role", "user"}, {"content", "q"}},
               {{"role", "assistant"}, {"tool_calls", {{{"function", {{"name", "f"}, {"arguments", "{}"}}}}}}}}}}),
       400, "the tool_calls of message 1"},
      {chat("base", "a", {{"tools", {nullptr}}}), 400, "list of objects"},
      {chat("base", "a", {{"tools", {{{"name", "f"}}, "f"}}}), 400, "list of objects"},
      {chat("base", "a", {{"tools", Json(256, {{"name", "f"}})}}), 400, "256 tools"},
      {chat("base", "a", {{"messages", Json(256, {{"role", "user"}, {"content", ""}})}}), 400, "256 messages"},
      {chat("base", std::string(2000, 'a')), 400, "max_context"},
      {"{\"model\": ", 400, "JSON"},
      {"[]", 400, "object"}};
  for (const Case& c : cases) {
    const Reply r = post("/v1/chat/completions", c.body);
    EXPECT_EQ(r.status, c.status) << c.body << r.body;
    ASSERT_TRUE(r.body.contains("error")) << r.body;
    EXPECT_THAT(r.body["error"]["message"].get<std::string>(), HasSubstr(c.says));
  }
  EXPECT_EQ(post("/v1/chat/completions", chat("base", "a", {{"frequency_penalty", 0}, {"user", "me"}})).status, 200);
  EXPECT_EQ(post("/v1/chat/completions", chat("base", "a", {{"tools", {{{"name", "f"}}}}})).status, 200) << "printed";
  EXPECT_EQ(post("/v1/completions", {{"model", "base"}, {"prompt", {400}}}).status, 400);
  EXPECT_EQ(post("/v1/nothing", {}).status, 404);
  EXPECT_EQ(post("/v1/completions", {{"model", "base"}, {"prompt", "a"}}, {{"Content-Encoding", "gzip"}}).status, 415);
}

TEST_F(Serve, ErrorsRepeatOnlyTheBeginningOfWhatWasSent) {
  start({});
  const std::string much(100'000, '9'), name(100'000, 'k');
  for (const std::string& body :
       {"{\"model\": \"base\", \"n\": " + much + "}", "{\"n\": " + much + "x}", "{\"" + name + "\": 1}",
        "{\"model\": \"" + name + "\"}", "{\"model\": \"base\", \"temperature\": \"" + name + "\"}",
        "{\"model\": \"base\", \"temperature\": 1e" + much + "}", "{\"a\": tru" + name + "}"}) {
    const auto reply = post_text("/v1/chat/completions", body);
    EXPECT_GE(reply.status, 400) << body.substr(0, 60);
    EXPECT_LT(reply.body.size(), 600u) << body.substr(0, 60);
  }
}

TEST_F(Serve, MessagesAreWholeCharacters) {
  start({});
  std::string long_name;
  for (int i = 0; i < 100; ++i) long_name += "\u20ac";  // of three bytes
  for (const std::string pad : {"", "a", "ab"})
    EXPECT_EQ(post("/v1/completions", {{"model", pad + long_name}, {"prompt", "a"}})
                  .body["error"]["message"]
                  .get<std::string>()
                  .find("\ufffd"),
              std::string::npos)
        << pad;
}

// A folder name that is not UTF-8 becomes a valid model name.
TEST(ServedNames, AreText) {
  const qtrain::testing::TempFolder folder;
  testing::write_noise_model(folder / "b\xff", folder / "tuned");
  Ctx ctx;
  const ServedModels models(ctx, {.base = {.model = (folder / "b\xff").string()}, .adapters = {}});
  EXPECT_EQ(models[0].name, "b\ufffd");
}

TEST_F(Serve, AsksForItsToken) {
  start({.token = "secret"});
  EXPECT_EQ(get("/v1/models").status, 401);
  EXPECT_EQ(get("/v1/models", {{"Authorization", "Bearer wrong"}}).status, 401);
  EXPECT_EQ(get("/v1/models", {{"Authorization", "Bearer secret"}}).status, 200);
  EXPECT_EQ(post("/v1/chat/completions", chat("base", "a")).status, 401);
  EXPECT_EQ(get("/health").status, 200);
  EXPECT_EQ(get("/").status, 200);
}

TEST_F(Serve, ABearerIsOneInAnyCase) {
  start({.token = "secret"});
  for (const char* good : {"bearer secret", "BEARER secret", "Bearer  secret"})
    EXPECT_EQ(get("/v1/models", {{"Authorization", good}}).status, 200) << good;
  for (const char* bad :
       {"Basic secret", "Bearersecret", "Bearer", "Bearer ", "secret", "Bearer secret2", "Bearer SECRET"})
    EXPECT_EQ(get("/v1/models", {{"Authorization", bad}}).status, 401) << bad;
}

// The body is not read, whether its stated length is large or its chunks never end.
TEST_F(Serve, NobodyIsReadWithoutTheToken) {
  start({.token = "secret"});
  for (const char* body : {"Content-Length: 8000000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\nfffff\r\n"}) {
    Client client = connect();
    client.send(std::string("POST /v1/completions HTTP/1.1\r\nHost: a\r\n") + body);
    EXPECT_EQ(client.fetch().status, 401) << body;
    client.receive_all();
    EXPECT_TRUE(client.is_closed()) << body;
  }
}

struct Asked {
  std::string line;
  int status;
  std::string allow = {};
};
TEST_F(Serve, SaysWhatAPathTakes) {
  start({});
  for (const Asked& asked : std::vector<Asked>{{"GET /v1/models/mine", 200},
                                               {"GET /v1/models/%6Dine", 200},
                                               {"GET /v1/models/mine?x=1", 200},
                                               {"GET /v1/models/", 404},
                                               {"GET /v1/models/none", 404},
                                               {"GET /v1/models/%FF%00", 404},
                                               {"GET /v1/models/%4", 400},
                                               {"GET /v1/nothing", 404},
                                               {"GET /v1/completions", 405, "POST"},
                                               {"DELETE /v1/chat/completions", 405, "POST"},
                                               {"POST /v1/models", 405, "GET, HEAD"},
                                               {"PUT /v1/models/mine", 405, "GET, HEAD"},
                                               {"OPTIONS /v1/models", 405, "GET, HEAD"},
                                               {"BREW /health", 405, "GET, HEAD"},
                                               {"OPTIONS *", 404}}) {
    Client client = connect();
    client.send(http::testing::request_text(asked.line));
    const auto reply = client.fetch();
    EXPECT_EQ(reply.status, asked.status) << asked.line;
    EXPECT_EQ(reply.header("Allow"), asked.allow) << asked.line;
    EXPECT_TRUE(Json::accept(reply.body)) << asked.line << reply.body;
  }
  EXPECT_EQ(Json::parse(get("/v1/models/mine").body)["id"], "mine");
}

TEST_F(Serve, RefusesOtherPagesWithoutAToken) {
  start({});
  EXPECT_EQ(get("/v1/models", {{"Host", "rebound.example.org"}}).status, 403);
  EXPECT_EQ(get("/v1/models", {{"Origin", "http://example.org"}}).status, 403);
  EXPECT_EQ(get("/v1/models", {{"Host", "LOCALHOST"}}).status, 200);
  const std::string own = "127.0.0.1:" + std::to_string(port_);
  EXPECT_EQ(get("/v1/models", {{"Origin", "http://" + own}, {"Host", own}}).status, 200);
}

TEST_F(Serve, ThePageLoadsNothingFromElsewhere) {
  start({});
  const auto page = get("/");
  EXPECT_THAT(page.header("Content-Security-Policy"), HasSubstr("default-src 'none'"));
  EXPECT_EQ(page.body.find("://"), std::string::npos);
  for (const char* part : {"/page.js", "/style.css"}) EXPECT_EQ(get(part).status, 200) << part;
}

TEST_F(Serve, AClientThatLeavesFreesItsPlace) {
  start({.batch = {.sequences = 1, .prefill_tokens = 64, .context = 60000, .cache_tokens = 60000}, .queue = 1});
  const std::string long_answer = chat("base", "a", {{"max_tokens", 59000}}).dump();  // which takes minutes
  for (const bool streams : {true, false}) {
    Json body = Json::parse(long_answer);
    body["stream"] = streams;
    const std::string text = body.dump();
    Client client = connect();
    client.send("POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: " +
                std::to_string(text.size()) + "\r\n\r\n" + text);
    ASSERT_TRUE(becomes_busy(1));
    client.close();
    ASSERT_TRUE(becomes_idle());
  }
}

// Even if its connection stays open, so that nothing reports that it is gone.
TEST_F(Serve, AClientThatTakesNoMoreFreesItsPlace) {
  start({});
  http::Request request{.method = "POST", .target = "/v1/chat/completions"};
  request.body = chat("base", "a", {{"max_tokens", 200}, {"stream", true}}).dump();
  request.is_gone = [] { return false; };
  for (const int taken : {0, 1, 3}) {
    int pieces = 0;
    service_->answer(request).stream([&](std::string_view) { return ++pieces <= taken; });
    EXPECT_EQ(pieces, taken + 1);
    EXPECT_TRUE(becomes_idle());
  }
}

TEST_F(Serve, ArgumentsNestedTooDeeplyAreRefused) {
  start({});
  Json body = chat("mine", "x");
  for (const std::string& arguments : {std::string(100000, '['), std::string("[1]")}) {
    body["messages"][0]["tool_calls"] = Json::array({{{"function", {{"name", "f"}, {"arguments", arguments}}}}});
    EXPECT_EQ(post("/v1/chat/completions", body).status, 400);
  }
}

TEST_F(Serve, AVeryLongPromptIsRefusedBeforeItIsTokenized) {
  start({});
  const std::string text(100'000, 'a');
  const Reply chatted = post("/v1/chat/completions", chat("base", text));
  const Reply completed = post("/v1/completions", {{"model", "base"}, {"prompt", text}});
  for (const Reply& r : {chatted, completed}) {
    EXPECT_EQ(r.status, 400);
    EXPECT_EQ(r.body["error"]["code"], "context_length_exceeded");
    EXPECT_THAT(r.body["error"]["message"].get<std::string>(), HasSubstr("bytes"));
  }
  EXPECT_EQ(tokenizer_->encoded, 0u);
}

std::string text_of(std::FILE* file) {
  std::rewind(file);
  std::string text(10000, 0);
  text.resize(std::fread(text.data(), 1, text.size(), file));
  return text;
}

// The reason is only in the log; answer and log both name the request.
TEST_F(Serve, AnAnswerThatFailsIsLoggedOnce) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> log(std::tmpfile(), std::fclose);
  start({.log = log.get()});
  tokenizer_->broken = true;
  std::vector<std::string> ids;
  for (const bool streams : {false, true}) {
    const auto r = post_text("/v1/chat/completions", chat("base", "a", {{"stream", streams}}).dump());
    ids.push_back(r.header("X-Request-Id"));
    EXPECT_EQ(r.status, streams ? 200 : 500);
    EXPECT_THAT(r.body, AllOf(HasSubstr("request " + ids.back() + " failed"), Not(HasSubstr("broken"))));
  }
  ASSERT_TRUE(becomes_idle());
  std::vector<Engine::Ticket> tickets;
  std::vector<SequenceRequest> broken(1);
  broken[0].prompt = {5};
  broken[0].on_token = [](const AnswerToken&) -> bool { throw std::runtime_error("broken outside"); };
  tickets = *engine_->submit(std::move(broken));
  ASSERT_TRUE(becomes_idle());
  const std::string said = text_of(log.get());
  for (const std::string& line : {"request " + ids[0] + " failed: an answer failed: broken within",
                                  "request " + ids[1] + " failed: an answer failed: broken within",
                                  fmt::format("answer {} failed: broken outside", tickets[0])})
    EXPECT_THAT(said, HasSubstr(line));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 3) << said;
}

TEST_F(Serve, AnAnswerThatFailsEndsAlone) {
  start({});
  std::vector<SequenceRequest> broken(1);
  broken[0].prompt = {5};
  broken[0].on_token = [](const AnswerToken&) -> bool { throw std::runtime_error("broken"); };
  ASSERT_TRUE(engine_->submit(std::move(broken)));
  EXPECT_TRUE(becomes_idle());
  EXPECT_EQ(post("/v1/chat/completions", chat("mine", "x")).status, 200);
}

// One request has all places for minutes; a second one takes some of them.
TEST_F(Serve, ARequestDoesNotWaitForAllOfAnother) {
  start({.batch = {.sequences = 3, .prefill_tokens = 64, .context = 6000, .cache_tokens = 18000}});
  Client first = connect();
  first.send(http::testing::request_text("POST /v1/chat/completions", {},
                                         chat("base", "a", {{"n", 5}, {"max_tokens", 5900}, {"seed", 1}}).dump()));
  ASSERT_TRUE(becomes_busy(5));
  EXPECT_EQ(post("/v1/chat/completions", chat("mine", "x")).status, 200);
  EXPECT_EQ(engine_->outstanding(), 5);
  first.close();
  EXPECT_TRUE(becomes_idle());
}

TEST_F(Serve, AFullQueueIsSaid) {
  start({.batch = {.sequences = 1, .prefill_tokens = 64, .context = 512, .cache_tokens = 512}, .queue = 1});
  const Reply r = post("/v1/chat/completions", chat("base", "a", {{"n", 3}}));
  EXPECT_EQ(r.status, 429);
  EXPECT_EQ(r.body["error"]["type"], "rate_limit_error");
  EXPECT_EQ(post("/v1/chat/completions", chat("base", "a", {{"n", 2}})).status, 200);
}

TEST_F(Serve, HasLimits) {
  using std::chrono::milliseconds;
  start({.http = {.connections = 1, .body_bytes = 1000, .header_time = milliseconds(200)}});
  EXPECT_EQ(post("/v1/chat/completions", std::string(2000, ' ')).status, 413);
  // The previous connection may still occupy the only place.
  std::string reply;
  do {
    Client slow = connect();
    slow.send("GET /health HT");
    reply = slow.receive_all();
  } while (reply.find(" 503 ") != std::string::npos);
  EXPECT_THAT(reply, HasSubstr(" 408 "));
  std::optional<Client> open;
  int status = 503;
  while (status == 503) {
    open.emplace(port_);
    open->send(http::testing::request_text("GET /health"));
    status = open->fetch().status;
  }
  ASSERT_EQ(status, 200);
  EXPECT_EQ(connect().fetch().status, 503);
}

TEST_F(Serve, AnswersUnderWayEndWithTheServer) {
  start({});
  std::vector<Json> chunks;
  std::thread asks([&] {
    chunks = events("/v1/chat/completions", chat("base", "a", {{"max_tokens", 200}, {"stream", true}}));
  });
  ASSERT_TRUE(becomes_busy(1));
  engine_->close();
  EXPECT_EQ(post("/v1/chat/completions", chat("base", "a")).status, 503);
  EXPECT_EQ(get("/health").status, 503);
  for (const std::size_t size : {10, 300'000})
    EXPECT_EQ(post("/v1/chat/completions", std::string(size, '[')).status, 503) << "a body that is not read any more";
  asks.join();
  ASSERT_FALSE(chunks.empty());
  EXPECT_EQ(chunks.back(), "[DONE]");
}

}  // namespace
}  // namespace qtrain::serve
