#include "app/serve/engine.h"

#include <algorithm>
#include <utility>

namespace qtrain::serve {

std::optional<std::vector<Engine::Ticket>> Engine::submit(std::vector<SequenceRequest> requests) {
  const std::lock_guard lock(mutex_);
  const auto count = static_cast<std::int64_t>(requests.size());
  if (closed_ || outstanding_ + count > max_) return {};
  outstanding_ += count;
  std::vector<Ticket> tickets;
  const Ticket first = next_;
  for (SequenceRequest& r : requests) {
    r.share.request = first;
    tickets.push_back(next_);
    submitted_.push_back({next_++, std::move(r)});
  }
  changed_.notify_one();
  return tickets;
}

void Engine::cancel(const std::vector<Ticket>& tickets) {
  const std::lock_guard lock(mutex_);
  cancelled_.insert(cancelled_.end(), tickets.begin(), tickets.end());
  changed_.notify_one();
}

void Engine::log_failure(Ticket ticket, const std::exception& e) {
  log_.error("answer {} failed: {}", ticket, e.what());
}

void Engine::take_submitted() {
  std::vector<Submitted> submitted;
  std::vector<Ticket> cancelled;
  {
    const std::lock_guard lock(mutex_);
    submitted.swap(submitted_);
    cancelled.swap(cancelled_);
  }
  for (Submitted& s : submitted) {
    s.request.on_token = [this, ticket = s.ticket, token = std::move(s.request.on_token)](const AnswerToken& t) {
      try {
        return token && token(t);
      } catch (const std::exception& e) {
        log_failure(ticket, e);
        return true;
      }
    };
    const auto finished = std::move(s.request.on_finished);
    s.request.on_finished = [this, ticket = s.ticket, finished](FinishReason reason) {
      running_.erase(ticket);
      --outstanding_;
      try {
        if (finished) finished(reason);
      } catch (const std::exception& e) {
        log_failure(ticket, e);
      }
    };
    running_[s.ticket] = batch_.add(std::move(s.request));
  }
  for (const Ticket ticket : cancelled) {
    const auto at = running_.find(ticket);
    if (at == running_.end()) continue;
    batch_.cancel(at->second);
    running_.erase(at);
    --outstanding_;
  }
}

void Engine::work() {
  while (!ended_) {
    {
      std::unique_lock lock(mutex_);
      if (batch_.empty())
        changed_.wait(lock, [&] { return ended_ || closed_ || !submitted_.empty() || !cancelled_.empty(); });
      if (closed_ && outstanding_ == 0) return;
    }
    take_submitted();
    if (!batch_.empty()) batch_.step();
  }
}

void Engine::run() {
  try {
    work();
  } catch (...) {
    end();
    throw;
  }
  end();
}

void Engine::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_one();
}

void Engine::end() {
  const std::lock_guard lock(mutex_);
  closed_ = ended_ = true;
  changed_.notify_one();
}

}  // namespace qtrain::serve
