// Loaded into a program by LD_PRELOAD, for what a machine may lack. After as many threads as the environment variable
// FEW_THREADS says, starting another one fails, as it does at the limit of processes. If SLOW_NAMES is set, looking up
// the full name of a machine takes as many seconds, as it does where no server of names answers.
#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>

namespace {

int number(const char* variable, int otherwise) {
  const char* value = std::getenv(variable);
  return value ? std::atoi(value) : otherwise;
}

template <class F>
F next(const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int pthread_create(pthread_t* thread, const pthread_attr_t* how, void* (*start)(void*), void* argument) noexcept {
  static const auto real = next<decltype(&pthread_create)>("pthread_create");
  static const int most = number("FEW_THREADS", 1 << 20);
  static std::atomic<int> started = 0;
  return started++ < most ? real(thread, how, start, argument) : EAGAIN;
}

int getaddrinfo(const char* name, const char* service, const addrinfo* hints, addrinfo** found) {
  static const auto real = next<decltype(&getaddrinfo)>("getaddrinfo");
  const bool full_name = hints && (hints->ai_flags & AI_CANONNAME) != 0;
  if (full_name) sleep(static_cast<unsigned>(number("SLOW_NAMES", 0)));
  return real(name, service, hints, found);
}
}
