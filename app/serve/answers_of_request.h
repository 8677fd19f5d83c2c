#pragma once
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
  std::string error = {};  ///< why it will not be finished
};

/// The answers to a request while they grow; those that have not finished are cancelled with it.
class AnswersOfRequest {
 public:
  /// ApiError: the queue is full (429), the server is stopping (503).
  AnswersOfRequest(Engine& engine, const ServedModels& models, ApiRequest request);
  ~AnswersOfRequest();
  AnswersOfRequest(const AnswersOfRequest&) = delete;
  AnswersOfRequest& operator=(const AnswersOfRequest&) = delete;

  const ApiRequest& request() const { return request_; }
  /// The next event; none where none comes in so long. ApiError (503) where no more will come, std::runtime_error where
  /// an answer has failed.
  std::optional<AnswerEvent> next(std::chrono::milliseconds longest);
  bool finished() const { return unfinished_ == 0; }

  std::int64_t prompt_tokens() const;
  std::int64_t answer_tokens() const;

 private:
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<AnswerEvent> events;
    std::int64_t tokens = 0;

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
