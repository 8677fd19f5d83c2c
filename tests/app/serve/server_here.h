#pragma once
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "app/serve/service.h"
#include "tests/app/serve/served_model.h"
#include "tests/core/http/client.h"
#include "tests/core/temp_folder.h"
#include "text/tokenizer/tokenizer.h"

namespace qtrain::serve {

/// Records what a server's tokenizer is asked to encode, and can make answers fail.
class WatchedTokenizer final : public Tokenizer {
 public:
  explicit WatchedTokenizer(std::unique_ptr<Tokenizer> inner) : inner_(std::move(inner)) {}
  std::vector<std::int32_t> encode(std::string_view text, EncodeOptions options) const override {
    encoded = text.size();
    return inner_->encode(text, options);
  }
  Encoding encode_with_offsets(std::string_view text, EncodeOptions options) const override {
    return inner_->encode_with_offsets(text, options);
  }
  std::string decode(std::span<const std::int32_t> ids, DecodeOptions options) const override {
    if (broken) throw std::runtime_error("broken within");
    return inner_->decode(ids, options);
  }
  std::int32_t size() const override { return inner_->size(); }
  std::optional<std::int32_t> id_of(std::string_view token) const override { return inner_->id_of(token); }
  std::string token(std::int32_t id) const override { return inner_->token(id); }
  bool is_special(std::int32_t id) const override { return inner_->is_special(id); }
  const SpecialTokens& special() const override { return inner_->special(); }

  std::atomic<bool> broken = false;
  mutable std::atomic<std::size_t> encoded = 0;  ///< bytes of the last text

 private:
  std::unique_ptr<Tokenizer> inner_;
};

/// Runs a server in this process, with a model and an adapter on it.
class Serve : public ::testing::Test {
 protected:
  struct Choice {
    BatchLimits batch{.sequences = 4, .prefill_tokens = 64, .context = 256, .cache_tokens = 1024};
    std::int64_t queue = 8;
    http::Limits http = {};
    std::string token = {};
    std::FILE* log = nullptr;
  };
  void start(const Choice& choice) {
    testing::write_noise_model(folder_ / "base", folder_ / "tuned");
    ctx_.emplace(Device{}, MatmulPrecision::storage, 2);
    log_.emplace(choice.log ? LogLevel::error : LogLevel::silent,
                 Log::Sinks{.people = choice.log ? choice.log : stderr});
    models_.emplace(*ctx_, ServedModels::Request{.base = {.model = (folder_ / "base").string()},
                                                 .adapters = {"mine=" + (folder_ / "tuned").string()}});
    models_->load(*ctx_, choice.batch, *log_);
    auto& tokenizer = const_cast<ServedModel&>((*models_)[0]).answers.text.tokenizer;
    auto watched = std::make_unique<WatchedTokenizer>(std::move(tokenizer));
    tokenizer_ = watched.get();
    tokenizer = std::move(watched);
    batch_.emplace(*ctx_, models_->runners(), choice.batch);
    engine_.emplace(*batch_, choice.queue, *log_);
    service_.emplace(*engine_, *models_,
                     ServiceOptions{.token = choice.token, .requests = {.context = choice.batch.context}}, *log_);
    server_.emplace(choice.http);
    port_ = server_->bind("127.0.0.1", 0);
    listening_ = std::thread([this] { server_->listen(*service_); });
    running_ = std::thread([this] { engine_->run(); });
  }
  void TearDown() override {
    if (!engine_) return;
    engine_->end();
    server_->wind_up();
    running_.join();
    listening_.join();
  }

  using Headers = std::vector<http::Header>;
  using Client = http::testing::RawClient;
  Client connect() const { return Client(port_); }
  http::testing::Fetched get(const std::string& path, const Headers& headers = {}) const {
    Client client = connect();
    client.send(http::testing::request_text("GET " + path, headers));
    return client.fetch();
  }
  http::testing::Fetched post_text(const std::string& path, const std::string& body,
                                   const Headers& headers = {}) const {
    Client client = connect();
    client.send(http::testing::request_text("POST " + path, headers, body));
    return client.fetch();
  }
  struct Reply {
    int status;
    Json body;
  };
  Reply post(const std::string& path, const Json& body, const Headers& headers = {}) const {
    const auto reply = post_text(path, body.is_string() ? body.get<std::string>() : body.dump(), headers);
    return {reply.status, Json::parse(reply.body, nullptr, false)};
  }
  static Json chat(const std::string& model, const std::string& text, const Json& more = Json::object()) {
    Json body{{"model", model},
              {"messages", {{{"role", "user"}, {"content", text}}}},
              {"max_tokens", 12},
              {"temperature", 0}};
    body.update(more);
    return body;
  }
  std::string answer(const Json& body) const {
    const Reply reply = post("/v1/chat/completions", body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.body["choices"][0]["message"]["content"];
  }
  /// The documents of a stream of server-sent events, "[DONE]" as a string.
  std::vector<Json> events(const std::string& path, const Json& body) const {
    const auto reply = post_text(path, body.dump());
    std::vector<Json> out;
    EXPECT_EQ(reply.header("Content-Type"), "text/event-stream");
    std::istringstream lines(reply.body);
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("data: "))
        out.push_back(line == "data: [DONE]" ? Json("[DONE]") : Json::parse(line.substr(6)));
    return out;
  }
  /// Waits until no answer is in progress.
  bool becomes_idle() const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (engine_->outstanding() > 0 && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return engine_->outstanding() == 0;
  }
  bool becomes_busy(std::int64_t answers) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (engine_->outstanding() < answers && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return engine_->outstanding() == answers;
  }
  qtrain::testing::TempFolder folder_;
  std::optional<Ctx> ctx_;
  std::optional<Log> log_;
  std::optional<ServedModels> models_;
  WatchedTokenizer* tokenizer_ = nullptr;  ///< of the base model
  std::optional<ContinuousBatch> batch_;
  std::optional<Engine> engine_;
  std::optional<Service> service_;
  std::optional<http::Server> server_;
  std::thread listening_, running_;
  int port_ = 0;
};

}  // namespace qtrain::serve
