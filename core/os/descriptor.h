#pragma once
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace qtrain {

/// Owns an open file descriptor and closes it; a negative one means none.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }
  /// Returns errno, or 0 on success.
  int close() {
    if (fd_ < 0) return 0;
    return ::close(std::exchange(fd_, -1)) == 0 ? 0 : errno;
  }

 private:
  int fd_ = -1;
};

/// Opens /dev/null in place of standard input, output or error if the program was started without them: otherwise the
/// next file that is opened would become one of them. Returns false if that fails.
bool open_missing_standard_streams();

}  // namespace qtrain
