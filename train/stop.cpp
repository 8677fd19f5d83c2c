#include "train/stop.h"

#include <signal.h>
#include <unistd.h>

#include <initializer_list>

#include "core/error.h"

namespace qtrain {
namespace {

constexpr int kSecondInterrupt = 130;

// A signal handler can only reach static storage; nothing else in the program is static and mutable.
volatile sig_atomic_t asked = 0;

extern "C" void on_stop_signal(int) {
  if (asked) _exit(kSecondInterrupt);
  asked = 1;
}

void handle(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);  // without SA_RESTART: a blocking read of a terminal returns
}

}  // namespace

void install_stop_handlers() {
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) handle(signal, on_stop_signal);
  for (const int signal : {SIGPIPE, SIGXFSZ}) handle(signal, SIG_IGN);
}

bool stop_requested() {
  return asked != 0;
}
void throw_if_stopped() {
  if (stop_requested())
    fail(ErrorKind::stopped, {.cause = "stopped by a signal", .remedy = "run the same command again"});
}
void set_stop_requested(bool value) {
  asked = value ? 1 : 0;
}

}  // namespace qtrain
