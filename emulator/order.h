#pragma once
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "emulator/device.h"

/// The happens-before order of work, as waits of streams and of the host define it, regardless of the order in which it
/// runs here.
namespace qtrain::emulation {

/// A lower bound on the completed work of each stream. Streams and their work are numbered.
class Progress {
 public:
  void see(std::uint64_t stream, std::uint64_t ticket);
  void see(const Progress& other);
  bool saw(std::uint64_t stream, std::uint64_t ticket) const;

 private:
  std::map<std::uint64_t, std::uint64_t> tickets_;
};

/// The position of a piece of work among all that is queued.
struct Stamp {
  std::uint64_t stream = 0, ticket = 0;
  std::uint64_t sequence = 0;  ///< position over all streams
  Progress before;
};

/// Copies, fills and GEMMs whose order relative to other work may still matter.
class Traffic {
 public:
  /// Throws an internal error that names both if the new work may run concurrently with other work that touches the
  /// same bytes.
  void add(const Stamp& at, const Work& work);
  /// Touches that may happen concurrently with a kernel.
  std::vector<NamedTouch> beside(const Stamp& kernel) const;
  /// The host has waited for the work in `reached`; work with a number above `sequence` is ordered after it.
  void settle(const Progress& reached, std::uint64_t sequence);
  /// Forgets entries that precede all queued work; `oldest` is the lowest queued number.
  void forget(std::uint64_t oldest);
  void clear();

 private:
  struct Entry {
    Stamp at;
    std::string name;
    std::vector<Touch> touches;
    std::uint64_t settled = std::numeric_limits<std::uint64_t>::max();
  };
  static bool ordered(const Entry& entry, const Stamp& other);

  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
};

}  // namespace qtrain::emulation
