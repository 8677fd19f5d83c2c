#pragma once
#include <cstdint>

#include <target/tensor_map.h>
#include <target/wgmma.cuh>

#include "emulator/mbarrier.h"

/// Counterpart of kernels/cuda/native/target/mbarrier.cuh, where each instruction is documented.
namespace qtrain::ptx {

using emulation::Place;

struct Mbarrier {
  std::uint64_t bits;
};

inline void init(Mbarrier& barrier, unsigned arrivals, Place place = Place::current()) {
  emulation::init_mbarrier(&barrier, arrivals, place);
}
inline void invalidate(Mbarrier& barrier, Place place = Place::current()) {
  emulation::invalidate_mbarrier(&barrier, place);
}
inline void arrive(Mbarrier& barrier, Place place = Place::current()) {
  emulation::arrive_at_mbarrier(&barrier, 0, place);
}
inline void arrive_and_expect(Mbarrier& barrier, unsigned bytes, Place place = Place::current()) {
  emulation::arrive_at_mbarrier(&barrier, bytes, place);
}
inline bool try_wait(Mbarrier& barrier, unsigned parity, Place place = Place::current()) {
  return emulation::try_wait_mbarrier(&barrier, parity, place);
}
inline void wait(Mbarrier& barrier, unsigned parity, Place place = Place::current()) {
  while (!try_wait(barrier, parity, place)) {
  }
}

inline void copy_box(void* tile, const target::TensorMap& map, const int (&at)[3], Mbarrier& full,
                     Place place = Place::current()) {
  emulation::copy_box({.to = static_cast<std::byte*>(tile), .map = map, .at = {at[0], at[1], at[2]}}, &full, place);
}

template <int Registers>
void lower_registers(Place place = Place::current()) {
  emulation::change_registers({.count = Registers, .raises = false}, place);
}
template <int Registers>
void raise_registers(Place place = Place::current()) {
  emulation::change_registers({.count = Registers, .raises = true}, place);
}

}  // namespace qtrain::ptx
