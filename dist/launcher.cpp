#include "dist/launcher.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "core/stop.h"
#include "dist/child.h"
#include "dist/store.h"

namespace qtrain {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kPeerLost = static_cast<int>(ErrorKind::peer);

/// A rank as the launcher sees it.
struct Rank {
  int number;
  Child process;
  std::string unfinished = {};  ///< a line that has not ended
  std::optional<ChildEnd> end = {};
  bool outlived_grace = false;  ///< it was killed because others had ended
};

class Supervisor {
 public:
  Supervisor(const Launch& launch, const Endpoint& store, Log& log) : launch_(launch), log_(log) {
    ranks_.reserve(static_cast<std::size_t>(launch.ranks));
    for (int i = 0; i < launch.ranks; ++i) start(i, store);
  }

  LaunchEnd run() {
    while (std::ranges::any_of(ranks_, [](const Rank& r) { return !r.end; })) {
      wait();
      for (Rank& r : ranks_) look_at(r);
      forward_stop();
      end_others();
    }
    return judge();
  }

 private:
  void start(int i, const Endpoint& store) {
    const RankPlace place{.rank = launch_.node * launch_.ranks + i,
                          .size = launch_.nodes * launch_.ranks,
                          .local_rank = i,
                          .local_size = launch_.ranks,
                          .store = store};
    ranks_.push_back({.number = place.rank,
                      .process = Child({.command = launch_.command,
                                        .variables = place_variables(place),
                                        .output = i == 0 ? Child::Output::shared : Child::Output::piped})});
  }

  void wait() {
    std::vector<pollfd> waited;
    for (const Rank& r : ranks_)
      if (!r.end && r.process.messages() >= 0) waited.push_back({r.process.messages(), POLLIN, 0});
    ::poll(waited.data(), waited.size(), 50);
  }

  void look_at(Rank& r) {
    if (r.end) return;
    const auto end = r.process.poll();
    hand_on(r);
    if (!end) return;
    r.end = end;
    if (!r.unfinished.empty()) say(r, r.unfinished);
    if (!end->failed()) return;
    if (failures_.empty()) failed_at_ = Clock::now();
    failures_.push_back(&r);
  }

  void hand_on(Rank& r) {
    if (r.process.messages() < 0) return;
    char part[4096];
    ssize_t n = 0;
    while ((n = ::read(r.process.messages(), part, sizeof part)) > 0)
      r.unfinished.append(part, static_cast<std::size_t>(n));
    std::size_t begin = 0, end = 0;
    for (; (end = r.unfinished.find('\n', begin)) != std::string::npos; begin = end + 1)
      say(r, r.unfinished.substr(begin, end - begin));
    r.unfinished.erase(0, begin);
  }

  void say(const Rank& r, const std::string& line) { log_.stream(fmt::format("[rank {}] {}\n", r.number, line)); }

  void forward_stop() {
    if (!stop_requested() || stop_forwarded_) return;
    stop_forwarded_ = true;
    send_all(SIGTERM);
  }

  // One rank that is gone is the end of the others; they get time to say so, and a stopped process ignores a request.
  void end_others() {
    if (failures_.empty()) return;
    const auto since = Clock::now() - failed_at_;
    if (since < launch_.grace) return;
    for (Rank& r : ranks_) r.outlived_grace |= !r.end;
    send_all(SIGKILL);
  }

  void send_all(int signal) const {
    for (const Rank& r : ranks_)
      if (!r.end) r.process.send(signal);
  }

  // The cause is the first rank that ended for a reason of its own.
  LaunchEnd judge() const {
    const auto first = [&](auto fits) {
      const auto it = std::ranges::find_if(failures_, [&](const Rank* r) { return fits(*r); });
      return it == failures_.end() ? nullptr : *it;
    };
    if (failures_.empty()) return {};
    if (const Rank* r = first([](const Rank& r) { return r.end->signal == 0 && r.end->exit_code != kPeerLost; }))
      return {.exit_code = r->end->exit_code};
    LaunchEnd end{.exit_code = kPeerLost, .answered = ranks_.front().end->signal == 0};
    const Rank* lost = first([](const Rank& r) { return r.end->signal != 0 && !r.outlived_grace; });
    if (!lost) lost = first([](const Rank& r) { return r.end->signal != 0; });
    if (lost) end.lost = loss_of(*lost);
    return end;
  }

  static ErrorText loss_of(const Rank& r) {
    const std::string how = r.outlived_grace ? "gave no sign of life and was killed" : "was ended by " + r.end->text();
    return {.cause = fmt::format("rank {} {}; the other ranks have stopped", r.number, how),
            .remedy = "run the same command to go on from the last checkpoint"};
  }

  const Launch& launch_;
  Log& log_;
  std::vector<Rank> ranks_;
  std::vector<const Rank*> failures_;  ///< in the order in which they came
  Clock::time_point failed_at_{};
  bool stop_forwarded_ = false;
};

}  // namespace

LaunchEnd launch_ranks(const Launch& launch, Log& log) {
  const Endpoint at = launch.nodes == 1 ? Endpoint{.host = "127.0.0.1"} : launch.meeting;
  std::optional<StoreServer> server;
  if (launch.node == 0) server.emplace(Endpoint{.host = launch.nodes == 1 ? at.host : "", .port = at.port});
  const Endpoint store{.host = at.host, .port = server ? server->port() : at.port};
  Supervisor supervisor(launch, store, log);
  return supervisor.run();
}

}  // namespace qtrain
