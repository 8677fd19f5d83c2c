#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "emulator/clocks.h"
#include "emulator/tensor_map.h"
#include "emulator/thread.h"

/// Barriers in shared memory, the copies of boxes that arrive at them, and the registers of warpgroups (PTX manual,
/// "mbarrier", "cp.async.bulk.tensor", "setmaxnreg").
namespace qtrain::emulation {

class Block;
struct Fiber;

void init_mbarrier(void* barrier, unsigned arrivals, Place place);
void invalidate_mbarrier(void* barrier, Place place);
/// Expects so many more bytes of copies, and arrives.
void arrive_at_mbarrier(void* barrier, unsigned bytes, Place place);
/// Waits for the last phase with this parity. Returns false without waiting at times if the order is random.
bool try_wait_mbarrier(void* barrier, unsigned parity, Place place);
/// Copies when the settings say so, and at the latest when no thread of the block can run.
void copy_box(const BoxCopy& copy, void* barrier, Place place);

struct RegisterChange {
  int count;  ///< per thread
  bool raises;
  int launched = 0;  ///< registers that the kernel was compiled for; 0: as many as a block of this size can have
};
void change_registers(const RegisterChange& change, Place place);

/// The barriers of a block, by their offset in shared memory.
class Mbarriers {
 public:
  void reset();

  void init(Block& block, std::uint32_t at, unsigned arrivals, Place place);
  void invalidate(Block& block, std::uint32_t at, Place place);
  void arrive(Block& block, std::uint32_t at, unsigned bytes, Place place);
  bool try_wait(Block& block, std::uint32_t at, unsigned parity, Place place);
  void start(Block& block, const BoxCopy& copy, std::uint32_t at, Place place);
  /// Completes one pending copy; returns whether there was one.
  bool land(Block& block);
  /// What is wrong when all threads have left the kernel; empty if nothing is.
  std::string unfinished() const;
  /// What the barriers that threads wait at lack; empty if there are none.
  std::string lacking() const;

 private:
  struct Mbarrier {
    unsigned arrivals, pending;
    std::int64_t bytes = 0;  ///< expected and not yet copied
    std::uint32_t phase = 0;
    Clocks::View gathered = {}, released = {};  ///< by this phase so far, and by the last one
    std::vector<Fiber*> waiting = {};
  };
  struct Pending {
    BoxCopy copy;
    std::uint32_t barrier, phase;
    unsigned thread;
    std::uint16_t epoch;
  };
  Mbarrier& find(Block& block, std::uint32_t at, const char* what, Place place);
  void finish_if_complete(Block& block, std::uint32_t at, Place place);
  void complete(Block& block, const Pending& p);

  std::map<std::uint32_t, Mbarrier> all_;
  std::deque<Pending> copies_;
};

/// The registers that each warp of a block has asked for.
class RegisterShares {
 public:
  void reset(std::size_t warps);
  void change(Block& block, unsigned warp, const RegisterChange& change, Place place);
  /// What is wrong when all threads have left the kernel; empty if nothing is.
  std::string unfinished() const;

 private:
  std::vector<std::vector<RegisterChange>> changes_;  ///< per warp
};

}  // namespace qtrain::emulation
