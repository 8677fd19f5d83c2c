#include "app/reproduction/own_process.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "core/os/stop.h"
#include "dist/child.h"
#include "dist/final_error.h"
#include "dist/rank_place.h"

namespace qtrain {

OwnProcessEnd run_own_process(const std::vector<std::string>& words, OwnProcessOutput output) {
  std::vector<std::string> command{"qtrain"};
  command.insert(command.end(), words.begin(), words.end());
  Child child({.command = command,
               .variables = variables_without_place(),
               .output = output == OwnProcessOutput::kept ? Child::Output::piped : Child::Output::shared});
  OwnProcessEnd end;
  const auto read_output = [&] {
    std::array<char, 4096> part;
    for (ssize_t n = 0; child.messages() >= 0 && (n = ::read(child.messages(), part.data(), part.size())) > 0;)
      end.output.append(part.data(), static_cast<std::size_t>(n));
  };
  constexpr int kMilliseconds = 20;
  bool stop_sent = false;
  for (;;) {
    pollfd readable{.fd = child.messages(), .events = POLLIN, .revents = 0};
    ::poll(&readable, 1, kMilliseconds);
    read_output();
    if (stop_requested() && !stop_sent) {
      stop_sent = true;
      child.send(SIGINT);
    }
    if (const auto over = child.poll()) {
      read_output();
      end.error = parse_final_error(child.final_error());
      end.signal = over->signal;
      end.exit_code = over->signal != 0 ? 128 + over->signal : over->exit_code;
      return end;
    }
  }
}

}  // namespace qtrain
