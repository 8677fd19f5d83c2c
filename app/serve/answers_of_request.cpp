#include "app/serve/answers_of_request.h"

#include <functional>
#include <new>
#include <utility>

#include "app/serve/api_error.h"

namespace qtrain::serve {

void AnswersOfRequest::Shared::push(AnswerEvent event) {
  const std::lock_guard lock(mutex);
  events.push_back(std::move(event));
  changed.notify_one();
}

// The callbacks run on the thread of the engine and may outlive this object.
SequenceRequest AnswersOfRequest::sequence(const ServedModel& model, std::size_t answer) const {
  const Tokenizer& tokenizer = *model.answers.text.tokenizer;
  const auto text = std::make_shared<AnswerText>(tokenizer, request_.stop);
  SamplingOptions sampling = request_.sampling;
  sampling.vocabulary = tokenizer.size();
  return {.model = request_.model,
          .share = {.client = std::hash<std::string>{}(request_.client)},
          .prompt = request_.prompts[answer / static_cast<std::size_t>(request_.choices)],
          .max_new_tokens = request_.max_new_tokens,
          .stop_tokens = model.answers.stop_tokens,
          .sampling = sampling,
          .number = answer,
          .top_logprobs = request_.top_logprobs,
          .on_token =
              [shared = shared_, text, answer](const AnswerToken& token) {
                if (shared->abandoned) return true;
                AnswerEvent event{.answer = answer};
                bool stopped = true;
                try {
                  stopped = text->push(token, event.piece);
                } catch (const std::exception& e) {
                  shared->push({.answer = answer, .error = e.what()});
                  return true;
                }
                {
                  const std::lock_guard lock(shared->mutex);
                  ++shared->tokens;
                }
                if (!event.piece.text.empty() || !event.piece.tokens.empty()) shared->push(std::move(event));
                return stopped;
              },
          .on_finished =
              [shared = shared_, text, answer](FinishReason reason) {
                AnswerEvent event{.answer = answer, .finish = reason};
                try {
                  text->finish(event.piece);
                } catch (const std::exception& e) {
                  event.error = e.what();
                }
                shared->push(std::move(event));
              }};
}

AnswersOfRequest::AnswersOfRequest(Engine& engine, const ServedModels& models, ApiRequest request)
    : engine_(engine), request_(std::move(request)), unfinished_(request_.answers()) {
  std::vector<SequenceRequest> sequences;
  for (std::size_t i = 0; i < request_.answers(); ++i) sequences.push_back(sequence(models[request_.model], i));
  auto tickets = engine_.submit(std::move(sequences));
  if (!tickets && engine_.closed()) throw ApiError(503, {.message = "the server is stopping"});
  if (!tickets)
    throw ApiError(429, {.message = "too many requests are waiting: try again later, or start the server with a larger "
                                    "--max_queue",
                         .code = "queue_full"});
  tickets_ = std::move(*tickets);
}

AnswersOfRequest::~AnswersOfRequest() {
  if (unfinished_ == 0) return;
  shared_->abandoned = true;
  try {
    engine_.cancel(tickets_);
  } catch (const std::bad_alloc&) {  // they end with their next tokens
  }
}

std::optional<AnswerEvent> AnswersOfRequest::next(std::chrono::milliseconds timeout) {
  std::unique_lock lock(shared_->mutex);
  if (!shared_->changed.wait_for(lock, timeout, [&] { return !shared_->events.empty(); })) {
    if (engine_.ended()) throw ApiError(503, {.message = "the server stopped before the answer was finished"});
    return {};
  }
  AnswerEvent event = std::move(shared_->events.front());
  shared_->events.pop_front();
  if (!event.error.empty()) throw std::runtime_error("an answer failed: " + event.error);
  if (event.finish) --unfinished_;
  return event;
}

std::int64_t AnswersOfRequest::prompt_tokens() const {
  std::int64_t n = 0;
  for (const auto& prompt : request_.prompts) n += static_cast<std::int64_t>(prompt.size());
  return n;
}

std::int64_t AnswersOfRequest::answer_tokens() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->tokens;
}

}  // namespace qtrain::serve
