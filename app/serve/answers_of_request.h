#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "app/serve/answer_text.h"
#include "app/serve/api_request.h"
#include "app/serve/engine.h"

namespace qtrain::serve {

/// Progress of one of the answers.
struct AnswerEvent {
  std::size_t answer = 0;
  AnswerText::Piece piece;
  std::optional<FinishReason> finish = {};
  std::string error = {};  ///< why the answer failed; empty: it did not
};

/// The answers to a request while they are generated. The destructor cancels those that have not finished.
class AnswersOfRequest {
 public:
  /// Throws ApiError with status 429 if the queue is full, and 503 if the server is stopping.
  AnswersOfRequest(Engine& engine, const ServedModels& models, ApiRequest request);
  ~AnswersOfRequest();
  AnswersOfRequest(const AnswersOfRequest&) = delete;
  AnswersOfRequest& operator=(const AnswersOfRequest&) = delete;

  const ApiRequest& request() const { return request_; }
  /// Waits for the next event; none if none arrives in time. Throws ApiError (503) if the server has stopped, and
  /// std::runtime_error if an answer failed.
  std::optional<AnswerEvent> next(std::chrono::milliseconds timeout);
  bool finished() const { return unfinished_ == 0; }

  std::int64_t prompt_tokens() const;
  std::int64_t answer_tokens() const;

 private:
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<AnswerEvent> events;
    std::int64_t tokens = 0;
    std::atomic<bool> abandoned = false;  ///< nobody waits for the events

    void push(AnswerEvent event);
  };
  SequenceRequest sequence(const ServedModel& model, std::size_t answer) const;

  Engine& engine_;
  ApiRequest request_;
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::vector<Engine::Ticket> tickets_;
  std::size_t unfinished_;
};

}  // namespace qtrain::serve
