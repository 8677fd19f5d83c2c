#include "dist/launcher.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "core/os/stop.h"
#include "dist/child.h"
#include "dist/final_error.h"
#include "dist/open_files.h"
#include "dist/plain_words.h"
#include "dist/store.h"

namespace qtrain {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kPeerLost = static_cast<int>(ErrorKind::peer);

/// A rank as the launcher sees it.
struct Rank {
  int number;
  Child process;
  std::string unfinished = {};  ///< an incomplete line of output
  std::optional<ChildEnd> end = {};
  bool outlived_grace = false;                ///< it was killed because others had ended
  bool left_early = false;                    ///< it ended successfully while others still needed it
  std::optional<std::uint64_t> written = {};  ///< Child::written, and when it last changed
  Clock::time_point wrote_at = {};
  bool alone = false;               ///< it goes on although the others end
  Clock::time_point ends_too = {};  ///< since when it no longer does
};

/// Where the ranks of a launch meet, and the server there; null if it is on another machine.
struct MeetingPlace {
  Meeting meeting;
  StoreServer* server;
};

class Supervisor {
 public:
  Supervisor(const Launch& launch, const MeetingPlace& place, Log& log)
      : launch_(launch), server_(place.server), log_(log) {
    ranks_.reserve(static_cast<std::size_t>(launch.ranks));
    for (int i = 0; i < launch.ranks; ++i) start(i, place.meeting);
  }

  LaunchEnd run() {
    while (std::ranges::any_of(ranks_, [](const Rank& r) { return !r.end; })) {
      wait();
      for (Rank& r : ranks_) check_rank(r);
      check_server();
      forward_stop();
      end_others();
    }
    return judge();
  }

 private:
  void start(int i, const Meeting& meeting) {
    const RankPlace place{.rank = launch_.node * launch_.ranks + i,
                          .size = launch_.nodes * launch_.ranks,
                          .local_rank = i,
                          .local_size = launch_.ranks,
                          .store = meeting.at,
                          .attempt = meeting.attempt};
    std::vector<std::string> variables = place_variables(place);
    variables.push_back(fmt::format("{}={}", kSecretVariable, meeting.secret.text()));
    ranks_.push_back({.number = place.rank,
                      .process = Child({.command = launch_.command,
                                        .variables = std::move(variables),
                                        .output = i == 0 ? Child::Output::shared : Child::Output::piped})});
  }

  void wait() {
    std::vector<pollfd> waited;
    for (const Rank& r : ranks_)
      if (!r.end && r.process.messages() >= 0) waited.push_back({r.process.messages(), POLLIN, 0});
    ::poll(waited.data(), waited.size(), 50);
  }

  void check_rank(Rank& r) {
    if (r.end) return;
    const auto end = r.process.poll();
    forward_output(r);
    const bool alone = !end && goes_on_alone(r.process.final_error());
    if (r.alone && !alone) r.ends_too = Clock::now();
    r.alone = alone;
    if (!end) return;
    r.end = end;
    if (!r.unfinished.empty()) say(r, r.unfinished);
    if (!first_end_) first_end_ = Clock::now();
    if (!end->failed()) return;
    note_loss();
    failures_.push_back(&r);
  }

  // If the server fails, ranks that cannot meet would wait for each other.
  void check_server() {
    if (!server_ || failure_) return;
    failure_ = server_->failure();
    if (!failure_) return;
    note_loss();
    send_all(SIGTERM);
  }

  void note_loss() {
    if (lost_at_) return;
    lost_at_ = Clock::now();
    for (Rank& r : ranks_) r.left_early = r.end && !r.end->failed();
  }

  void forward_output(Rank& r) {
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

  void say(const Rank& r, const std::string& line) {
    log_.pass_on(fmt::format("[rank {}] {}\n", r.number, plain_words(line)));
  }

  void forward_stop() {
    if (!stop_requested() || stop_forwarded_) return;
    stop_forwarded_ = true;
    send_all(SIGTERM);
  }

  // When a rank is lost, the others must end too. They get time to report errors and to finish writing, and are then
  // killed, because a suspended process would ignore other signals.
  void end_others() {
    const auto now = Clock::now();
    const auto is_late = [&](const Rank& r) {
      return !r.end && !r.alone && now - std::max(*first_end_, r.ends_too) > launch_.end_together;
    };
    if (first_end_ && std::ranges::any_of(ranks_, is_late)) note_loss();
    if (!lost_at_) return;
    for (Rank& r : ranks_) {
      if (r.end || r.alone) continue;
      const auto since = std::max(*lost_at_, r.ends_too);
      if (const auto written = r.process.written(); written != r.written) {
        r.written = written;
        r.wrote_at = now;
      }
      const bool writes = now - std::max(r.wrote_at, since) < launch_.grace;
      if (now - since < (writes ? launch_.writing_grace : launch_.grace)) continue;
      r.outlived_grace = true;
      r.process.send(SIGKILL);
    }
  }

  void send_all(int signal) const {
    for (const Rank& r : ranks_)
      if (!r.end) r.process.send(signal);
  }

  // The cause is the first rank that ended for its own reason: preferably with an error, else by a signal, else
  // silently.
  LaunchEnd judge() const {
    if (failure_) return {.exit_code = failure_->exit_code(), .cause = failure_};
    if (failures_.empty()) return {};
    if (const Rank* r = first([](const Rank& r) { return r.end->signal == 0 && r.end->exit_code != kPeerLost; }))
      return {.exit_code = r->end->exit_code, .cause = final_error_of(*r)};
    if (const Rank* r = first([](const Rank& r) { return r.end->signal != 0 && !r.outlived_grace; })) return lost(*r);
    const auto quitter = std::ranges::find_if(ranks_, [&](const Rank& r) { return r.left_early; });
    if (quitter != ranks_.end()) return lost(*quitter);
    // If a rank had to be killed, prefer the cause that the other ranks report.
    const auto knows = [](const Rank& r) { return final_error_of(r) && !is_reported_elsewhere(*final_error_of(r)); };
    if (const Rank* r = first(knows)) return {.exit_code = kPeerLost, .cause = final_error_of(*r)};
    if (const Rank* r = first([](const Rank& r) { return r.end->signal != 0; })) return lost(*r);
    return {.exit_code = kPeerLost, .cause = final_error_of(*failures_.front())};
  }

  const Rank* first(auto fits) const {
    const auto it = std::ranges::find_if(failures_, [&](const Rank* r) { return fits(*r); });
    return it == failures_.end() ? nullptr : *it;
  }

  static std::optional<Error> final_error_of(const Rank& r) { return parse_final_error(r.process.final_error()); }

  static LaunchEnd lost(const Rank& r) {
    const std::string how = r.outlived_grace ? "did not respond and was killed"
                            : r.left_early   ? "ended before the others, with " + r.end->text()
                                             : "was ended by " + r.end->text();
    return {.exit_code = kPeerLost,
            .cause =
                Error(ErrorKind::peer, {.cause = fmt::format("rank {} {}; the other ranks have stopped", r.number, how),
                                        .remedy = kResumeRemedy})};
  }

  const Launch& launch_;
  StoreServer* server_;
  Log& log_;
  std::optional<Error> failure_ = {};  ///< of the store
  std::vector<Rank> ranks_;
  std::vector<const Rank*> failures_;  ///< in the order in which they ended
  std::optional<Clock::time_point> first_end_ = {},
                                   lost_at_ = {};  ///< when the first rank ended, and when one was found to be missing
  bool stop_forwarded_ = false;
};

}  // namespace

LaunchEnd launch_ranks(const Launch& launch, Log& log) {
  raise_open_files();
  const bool alone = launch.nodes == 1;
  const Endpoint at = alone ? Endpoint{.host = "127.0.0.1"} : launch.meeting;
  Meeting meeting{.at = at,
                  .secret = alone ? RankSecret::random() : shared_secret(),
                  .attempt = launch.attempt,
                  .ranks = launch.nodes * launch.ranks,
                  .say = [&log](const std::string& text) { log.warn("{}", text); }};
  std::optional<StoreServer> server;
  if (launch.node == 0) server.emplace(meeting);
  if (server) meeting.at.port = server->port();
  Supervisor supervisor(launch, {.meeting = meeting, .server = server ? &*server : nullptr}, log);
  return supervisor.run();
}

}  // namespace qtrain
