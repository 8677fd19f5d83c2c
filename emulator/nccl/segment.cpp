#include "emulator/nccl/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace qtrain::stand_in {

std::string Descriptor::text() const {
  constexpr std::array<std::string_view, 6> kKinds{"nothing",   "all_reduce", "reduce_scatter",
                                                   "broadcast", "all_gather", "send"};
  return std::string(kKinds.at(static_cast<std::size_t>(kind))) + " " + std::to_string(number) + " of " +
         std::to_string(count) + " of type " + std::to_string(type) + ", " + std::to_string(detail);
}

Segment::Segment(std::string name) : name_(std::move(name)) {
  const int fd = ::shm_open(name_.c_str(), O_RDWR | O_CREAT, 0600);
  if (fd < 0 || ::ftruncate(fd, sizeof(SharedRanks)) != 0) throw std::runtime_error("no shared memory " + name_);
  void* p = ::mmap(nullptr, sizeof(SharedRanks), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (p == MAP_FAILED) throw std::runtime_error("cannot map " + name_);
  ranks_ = static_cast<SharedRanks*>(p);
}

Segment::~Segment() {
  ::munmap(ranks_, sizeof(SharedRanks));
}

void Segment::forget_name() const {
  ::shm_unlink(name_.c_str());
}

}  // namespace qtrain::stand_in
