// Loaded into a program by LD_PRELOAD: sends it an interrupt just before or after the call that the environment
// variables TIMED_SIGNAL_* name, so that a test does not depend on the speed of the machine.
#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

/// From the environment: "fsync", "rename" or "renamed", or the text of a message, and which occurrence counts.
struct Moment {
  std::string call = variable("TIMED_SIGNAL_CALL"), text = variable("TIMED_SIGNAL_TEXT");
  int number = std::atoi(variable("TIMED_SIGNAL_NUMBER").c_str());
};

const Moment& moment() {
  static const Moment m;
  return m;
}

void come_to(std::string_view call) {
  static std::atomic<int> calls = 0;
  if (call == moment().call && ++calls == moment().number) kill(getpid(), SIGINT);
}

template <class F>
F* next(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int fsync(int file) {
  static const auto real = next<int(int)>("fsync");
  come_to("fsync");
  return real(file);
}

int rename(const char* from, const char* to) noexcept {
  static const auto real = next<int(const char*, const char*)>("rename");
  come_to("rename");
  const int result = real(from, to);
  come_to("renamed");
  return result;
}

size_t fwrite(const void* bytes, size_t size, size_t count, FILE* file) {
  static const auto real = next<size_t(const void*, size_t, size_t, FILE*)>("fwrite");
  static std::atomic<bool> sent = false;
  const std::string_view written(static_cast<const char*>(bytes), size * count);
  const size_t result = real(bytes, size, count, file);
  if (!moment().text.empty() && written.find(moment().text) != std::string_view::npos && !sent.exchange(true))
    kill(getpid(), SIGINT);
  return result;
}

}  // extern "C"
