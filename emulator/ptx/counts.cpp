#include "emulator/ptx/counts.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "core/error.h"

namespace qtrain::emulation::ptx {
namespace {

constexpr std::size_t kLanes = 32, kBanks = 32, kWordBytes = 4, kSectorBytes = 32;

/// The bytes of a sector that are accessed, as bits.
struct Sector {
  std::uint64_t number;
  std::uint32_t bytes;
};

void add_global(Counts& counts, const std::array<LaneAccess, kLanes>& lanes) {
  std::array<Sector, kLanes> sectors;
  std::size_t count = 0;
  for (const LaneAccess& lane : lanes) {
    if (lane.global_bytes == 0) continue;
    const std::uint64_t bits = (std::uint64_t{1} << lane.global_bytes) - 1;
    sectors[count++] = {lane.global / kSectorBytes, static_cast<std::uint32_t>(bits << lane.global % kSectorBytes)};
    counts.global_bytes += lane.global_bytes;
  }
  std::sort(sectors.begin(), sectors.begin() + static_cast<std::ptrdiff_t>(count),
            [](const Sector& a, const Sector& b) { return a.number < b.number; });
  std::uint64_t touched = 0, distinct = 0;
  for (std::size_t n = 0; n < count;) {
    std::uint32_t bytes = 0;
    const std::uint64_t number = sectors[n].number;
    for (; n < count && sectors[n].number == number; ++n) bytes |= sectors[n].bytes;
    distinct += static_cast<std::uint64_t>(std::popcount(bytes));
    ++touched;
  }
  counts.sectors += touched;
  counts.excess_sectors += touched - (distinct + kSectorBytes - 1) / kSectorBytes;
}

/// The passes over the banks for these lanes: the most distinct words in one bank.
std::uint64_t passes(const LaneAccess* lanes, std::size_t count) {
  std::array<std::uint32_t, kLanes> words;
  std::size_t n = 0;
  for (const LaneAccess* lane = lanes; lane < lanes + count; ++lane)
    for (std::uint32_t at = lane->shared; at < lane->shared + lane->shared_bytes; at += kWordBytes)
      words[n++] = at / kWordBytes;
  std::sort(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(n));
  std::array<std::uint64_t, kBanks> in_bank{};
  for (std::size_t i = 0; i < n; ++i)
    if (i == 0 || words[i] != words[i - 1]) ++in_bank[words[i] % kBanks];
  return *std::max_element(in_bank.begin(), in_bank.end());
}

// A pass moves at most 128 bytes: accesses of 8 bytes are made by half warps, those of 16 by quarters.
void add_shared(Counts& counts, const std::array<LaneAccess, kLanes>& lanes) {
  std::size_t bytes = kWordBytes;
  for (const LaneAccess& lane : lanes) bytes = std::max<std::size_t>(bytes, lane.shared_bytes);
  const std::size_t together = kBanks * kWordBytes / bytes;
  for (std::size_t first = 0; first < kLanes; first += together)
    if (const std::uint64_t n = passes(&lanes[first], together); n > 0) {
      counts.wavefronts += n;
      counts.conflicts += n - 1;
    }
}

}  // namespace

std::uint64_t Counts::total() const {
  return std::accumulate(instructions.begin(), instructions.end(), std::uint64_t{0});
}

Counts& Counts::operator+=(const Counts& other) {
  for (std::size_t n = 0; n < kKinds; ++n) instructions[n] += other.instructions[n];
  global_bytes += other.global_bytes;
  sectors += other.sectors;
  excess_sectors += other.excess_sectors;
  wavefronts += other.wavefronts;
  conflicts += other.conflicts;
  return *this;
}

void add_traffic(Counts& counts, const std::array<LaneAccess, kLanes>& lanes) {
  const auto has = [&](std::uint8_t LaneAccess::*bytes) {
    return std::ranges::any_of(lanes, [&](const LaneAccess& lane) { return lane.*bytes > 0; });
  };
  if (has(&LaneAccess::global_bytes)) add_global(counts, lanes);
  if (has(&LaneAccess::shared_bytes)) add_shared(counts, lanes);
  for (const LaneAccess& lane : lanes) {  // rows of boxes are whole sectors, and take all banks
    counts.global_bytes += lane.box_read;
    counts.sectors += lane.box_read / kSectorBytes;
    counts.wavefronts += lane.box_written / (kBanks * kWordBytes);
  }
}

Counting*& Counting::place() {
  static Counting* current = nullptr;
  return current;
}
Counting::Counting() {
  check(place() == nullptr, "launches are already counted");
  place() = this;
}
Counting::~Counting() {
  place() = nullptr;
}
std::vector<CountedLaunch> Counting::take() {
  return std::exchange(launches_, {});
}
void Counting::add(CountedLaunch launch) {
  launches_.push_back(std::move(launch));
}

}  // namespace qtrain::emulation::ptx
