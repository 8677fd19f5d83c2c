// Loaded into a program by LD_PRELOAD, for what a machine may lack. After as many threads as the environment variable
// FEW_THREADS says, starting another one fails, as it does at the limit of processes. If SLOW_NAMES is set, looking up
// the full name of a machine takes as many seconds, as it does where no name server answers. Writes to files whose path
// contains HELD_FILE wait until the file HELD_UNTIL exists. A file whose path contains CROWDED_FILE gets a few bytes of
// each write, then some of another program, until the disk is full.
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

int number(const char* variable, int otherwise) {
  const char* value = std::getenv(variable);
  return value ? std::atoi(value) : otherwise;
}

template <class F>
F next(const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

bool is_part_of_path(const char* part, int file) {
  if (!part) return false;
  char link[32], path[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0) return false;
  path[length] = '\0';
  return std::strstr(path, part) != nullptr;
}

void append_of_another(int file) {
  char link[32];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const int other = open(link, O_WRONLY | O_APPEND);
  const bool appended = other >= 0 && write(other, "\n{}", 3) == 3;
  if (!appended) std::abort();
  close(other);
}

void hold(int file) {
  constexpr int kLongest = 60'000, kMicroseconds = 1'000;
  static const char* const held = std::getenv("HELD_FILE");
  static const char* const until = std::getenv("HELD_UNTIL");
  if (!until || !is_part_of_path(held, file)) return;
  for (int i = 0; i < kLongest && access(until, F_OK) != 0; ++i) usleep(kMicroseconds);
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

ssize_t write(int file, const void* bytes, size_t size) {
  static const auto real = next<decltype(&write)>("write");
  static const char* const crowded = std::getenv("CROWDED_FILE");
  static std::atomic<int> writes = 0;
  hold(file);
  if (size < 4 || !is_part_of_path(crowded, file)) return real(file, bytes, size);
  if (writes++ == 2) {
    errno = ENOSPC;
    return -1;
  }
  const ssize_t written = real(file, bytes, 4);
  if (writes == 1) append_of_another(file);
  return written;
}

int fflush(FILE* file) {
  static const auto real = next<decltype(&fflush)>("fflush");
  if (file) hold(fileno(file));
  return real(file);
}
}
