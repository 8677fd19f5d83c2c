#pragma once
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "emulator/device.h"

/// Which work happens before which, as waits of streams and of the host say it: not as it happens to run here.
namespace qtrain::emulation {

/// How much of the work of each stream is over, at the least. Streams and their work are numbered.
class Progress {
 public:
  void see(std::uint64_t stream, std::uint64_t ticket);
  void see(const Progress& other);
  bool saw(std::uint64_t stream, std::uint64_t ticket) const;

 private:
  std::map<std::uint64_t, std::uint64_t> tickets_;
};

/// A piece of work among all that is queued.
struct Stamp {
  std::uint64_t stream = 0, ticket = 0;
  std::uint64_t sequence = 0;  ///< over all streams
  Progress before;
};

/// Copies, fills and GEMMs whose order to other work may still matter.
class Traffic {
 public:
  /// An internal error that names both if the new work may run beside other work that touches the same bytes.
  void add(const Stamp& at, const Work& work);
  /// What may run beside a kernel.
  std::vector<NamedTouch> beside(const Stamp& kernel) const;
  /// The host has waited for a stream, as far as this; work with a later number than `sequence` comes behind.
  void settle(const Progress& reached, std::uint64_t sequence);
  /// Forgets what lies before all that is queued, of which `oldest` has the lowest number.
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
