#include "core/os/stop.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <termios.h>
#include <unistd.h>

#include <cstdlib>

namespace qtrain {
namespace {

bool echoes(int terminal) {
  termios now{};
  EXPECT_EQ(tcgetattr(terminal, &now), 0);
  return (now.c_lflag & ECHO) != 0;
}

void turn_echo_off(int terminal) {
  termios raw{};
  tcgetattr(terminal, &raw);
  raw.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON);
  tcsetattr(terminal, TCSANOW, &raw);
}

/// A pseudoterminal of its own.
struct Pty {
  int master = ::posix_openpt(O_RDWR | O_NOCTTY), terminal = -1;

  Pty() {
    EXPECT_TRUE(::grantpt(master) == 0 && ::unlockpt(master) == 0);
    terminal = ::open(::ptsname(master), O_RDWR | O_NOCTTY);
    EXPECT_GE(terminal, 0);
  }
  ~Pty() {
    ::close(terminal);
    ::close(master);
  }
  Pty(const Pty&) = delete;
  Pty& operator=(const Pty&) = delete;
};

TEST(Stop, ASecondInterruptGivesTheTerminalBack) {
  const Pty pty;
  ASSERT_TRUE(echoes(pty.terminal));
  EXPECT_EXIT(
      {
        ::dup2(pty.terminal, STDIN_FILENO);
        install_stop_handlers();
        const TerminalSettings kept;
        turn_echo_off(STDIN_FILENO);
        raise(SIGINT);
        raise(SIGINT);
      },
      ::testing::ExitedWithCode(130), "");
  EXPECT_TRUE(echoes(pty.terminal));
}

}  // namespace
}  // namespace qtrain
