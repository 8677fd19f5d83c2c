#include "emulator/nccl/exchange.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>

namespace qtrain::stand_in {
namespace {

/// The first unfinished message for each peer.
std::vector<Message*> next(std::vector<Message>& messages) {
  std::vector<Message*> fronts;
  std::set<int> seen;
  for (Message& m : messages)
    if (!m.done() && seen.insert(m.peer).second) fronts.push_back(&m);
  return fronts;
}

[[noreturn]] void tell_difference(int rank, const Message& m, const Descriptor& theirs) {
  throw std::runtime_error("the ranks make different calls: rank " + std::to_string(rank) + " does " + m.what.text() +
                           "; rank " + std::to_string(m.peer) + " does " + theirs.text());
}

}  // namespace

bool Exchange::push(SharedRanks& ranks, int rank) {
  bool moved = false;
  for (Message* m : next(sends)) {
    Slot& slot = ranks.slots[rank][m->peer];
    if (slot.full.load(std::memory_order_acquire) != 0) continue;
    slot.bytes = static_cast<std::uint32_t>(std::min(kSlotBytes, m->bytes - m->at));
    slot.what = m->what;
    if (slot.bytes > 0) std::memcpy(slot.data, m->data + m->at, slot.bytes);
    m->at += slot.bytes;
    m->begun = moved = true;
    slot.full.store(1, std::memory_order_release);
  }
  return moved;
}

bool Exchange::pull(SharedRanks& ranks, int rank) {
  bool moved = false;
  for (Message* m : next(receives)) {
    Slot& slot = ranks.slots[m->peer][rank];
    if (slot.full.load(std::memory_order_acquire) == 0) continue;
    if (!(slot.what == m->what)) tell_difference(rank, *m, slot.what);
    if (slot.bytes > 0) std::memcpy(m->data + m->at, slot.data, slot.bytes);
    m->at += slot.bytes;
    m->begun = moved = true;
    slot.full.store(0, std::memory_order_release);
  }
  return moved;
}

bool Exchange::run(Segment& segment, int rank, const std::atomic<bool>& aborted) {
  const auto done = [](const std::vector<Message>& all) {
    return std::all_of(all.begin(), all.end(), [](const Message& m) { return m.done(); });
  };
  while (!done(sends) || !done(receives)) {
    if (aborted) return false;
    const bool pushed = push(*segment.operator->(), rank), pulled = pull(*segment.operator->(), rank);
    if (!pushed && !pulled) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

}  // namespace qtrain::stand_in
