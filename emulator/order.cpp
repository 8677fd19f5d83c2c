#include "emulator/order.h"

#include <algorithm>

namespace qtrain::emulation {
namespace {

bool collide(const Touch& a, const Touch& b) {
  return (a.writes || b.writes) && overlaps(a, b.data, b.bytes);
}

}  // namespace

void Progress::see(std::uint64_t stream, std::uint64_t ticket) {
  std::uint64_t& known = tickets_[stream];
  known = std::max(known, ticket);
}
void Progress::see(const Progress& other) {
  for (const auto& [stream, ticket] : other.tickets_) see(stream, ticket);
}
bool Progress::saw(std::uint64_t stream, std::uint64_t ticket) const {
  const auto at = tickets_.find(stream);
  return at != tickets_.end() && at->second >= ticket;
}

bool Traffic::ordered(const Entry& entry, const Stamp& other) {
  return entry.at.stream == other.stream || entry.settled <= other.sequence ||
         other.before.saw(entry.at.stream, entry.at.ticket) || entry.at.before.saw(other.stream, other.ticket);
}

void Traffic::add(const Stamp& at, const Work& work) {
  const std::lock_guard lock(mutex_);
  for (const Entry& e : entries_) {
    if (ordered(e, at)) continue;
    for (const Touch& mine : work.touches)
      for (const Touch& other : e.touches)
        if (collide(mine, other))
          fail(ErrorKind::internal,
               {.cause = "race of streams: '" + work.name + "' " + (mine.writes ? "writes" : "reads") + " what '" +
                         e.name + "' of another stream " + (other.writes ? "writes" : "reads") +
                         ", and neither waits for the other"});
  }
  entries_.push_back({.at = at, .name = work.name, .touches = work.touches});
}

std::vector<NamedTouch> Traffic::beside(const Stamp& kernel) const {
  const std::lock_guard lock(mutex_);
  std::vector<NamedTouch> found;
  for (const Entry& e : entries_)
    if (!ordered(e, kernel))
      for (const Touch& t : e.touches) found.push_back({t, e.name});
  return found;
}

void Traffic::settle(const Progress& reached, std::uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  for (Entry& e : entries_)
    if (reached.saw(e.at.stream, e.at.ticket)) e.settled = std::min(e.settled, sequence);
}

void Traffic::forget(std::uint64_t oldest) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [&](const Entry& e) { return e.settled <= oldest; });
}

void Traffic::clear() {
  const std::lock_guard lock(mutex_);
  entries_.clear();
}

}  // namespace qtrain::emulation
