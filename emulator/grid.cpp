#include "emulator/grid.h"

#include <sys/mman.h>

#include <atomic>
#include <memory>
#include <numeric>
#include <vector>

#include "core/parallel.h"
#include "emulator/block.h"
#include "emulator/memory.h"

namespace qtrain::emulation {
namespace {

constexpr unsigned kMaxBlocksX = 0x7fffffff, kMaxBlocksYZ = 65535, kMaxThreadsZ = 64;

[[noreturn]] void refuse(const char* name, const std::string& why) {
  fail(ErrorKind::internal, {.cause = std::string("kernel ") + name + ": " + why});
}

/// Host threads that run blocks. Device work is serialized (Access locks), so one grid runs at a time.
class Workers {
 public:
  static Workers& instance() {
    static Workers workers;
    return workers;
  }

  void run(const Kernel& kernel, const Extents& extents) {
    adapt();
    Releases releases;
    const Launch launch{.kernel = kernel,
                        .extents = extents,
                        .serial = next_serial(),
                        .beside = touches_beside(),
                        .releases = &releases};
    const std::int64_t count = std::int64_t{extents.blocks.x} * extents.blocks.y * extents.blocks.z;
    const std::vector<std::uint32_t> shuffled =
        settings().order == Order::random ? shuffle(count) : std::vector<std::uint32_t>{};
    std::atomic<bool> failed = false;
    pool_->run(count, [&](std::int64_t task, int worker) {
      if (failed) return;
      std::int64_t number = settings().order == Order::reverse ? count - 1 - task : task;
      if (!shuffled.empty()) number = shuffled[static_cast<std::size_t>(task)];
      try {
        blocks_[static_cast<std::size_t>(worker)]->run(launch, static_cast<std::uint64_t>(number));
      } catch (const Error&) {
        failed = true;
        releases.stop();
        throw;
      }
    });
  }

 private:
  void adapt() {
    if (pool_ && threads_ == settings().host_threads) return;
    threads_ = settings().host_threads;
    pool_ = std::make_unique<ThreadPool>(threads_);
    if (pool_->size() > kMaxHostThreads) pool_ = std::make_unique<ThreadPool>(kMaxHostThreads);
    while (static_cast<int>(blocks_.size()) < pool_->size())
      blocks_.push_back(std::make_unique<Block>(static_cast<int>(blocks_.size())));
  }

  std::uint32_t next_serial() {
    if (++serial_ >= kSerials) {
      forget_accesses();
      serial_ = 1;
    }
    return serial_;
  }

  /// A permutation that depends on the seed and the launch.
  std::vector<std::uint32_t> shuffle(std::int64_t count) {
    std::vector<std::uint32_t> order(static_cast<std::size_t>(count));
    std::iota(order.begin(), order.end(), 0u);
    std::uint64_t state = settings().seed * 0x9E3779B97F4A7C15u + serial_;
    for (std::size_t i = order.size(); i > 1; --i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      std::swap(order[i - 1], order[(state >> 33) % i]);
    }
    return order;
  }

  int threads_ = -1;
  std::uint32_t serial_ = 0;
  std::unique_ptr<ThreadPool> pool_;
  std::vector<std::unique_ptr<Block>> blocks_;
};

}  // namespace

void check_launch(const char* name, const Extents& e) {
  const std::uint64_t threads = std::uint64_t{e.threads.x} * e.threads.y * e.threads.z;
  if (threads == 0 || threads > kMaxThreads || e.threads.z > kMaxThreadsZ)
    refuse(name, "a block of " + std::to_string(threads) + " threads; 1 to 1024 are possible");
  if (e.blocks.x == 0 || e.blocks.y == 0 || e.blocks.z == 0) refuse(name, "a grid without blocks");
  if (e.blocks.x > kMaxBlocksX || e.blocks.y > kMaxBlocksYZ || e.blocks.z > kMaxBlocksYZ)
    refuse(name, "a grid of " + std::to_string(e.blocks.x) + " x " + std::to_string(e.blocks.y) + " x " +
                     std::to_string(e.blocks.z) + " blocks; the y and z extents end at 65535");
  if (e.shared_bytes > settings().shared_bytes())
    refuse(name, std::to_string(e.shared_bytes) + " bytes of shared memory; a block has at most " +
                     std::to_string(settings().shared_bytes()));
}

void check_argument(const char* name, const void* pointer) {
  if (pointer && !is_device_address(pointer)) refuse(name, "an argument points to memory of the host");
}

void run_grid(const Kernel& kernel, const Extents& extents) {
  const Access access;
  Workers::instance().run(kernel, extents);
}

}  // namespace qtrain::emulation
