#pragma once
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "emulator/device.h"

namespace qtrain::emulation {

/// The work of a graph, in the order in which it was queued. That order respects all waits between streams.
struct Record {
  struct Part {
    void* stream;
    Work work;
  };
  std::vector<Part> parts;

  /// An internal error that names the first part in which `again` differs.
  void require_same(const Record& again) const;
};

/// A record while it is made by one thread. Other streams join when they wait for an event of it, and must be waited
/// for before its end.
class Recording {
 public:
  /// What happens in a recording at an event of it.
  struct Mark {
    void* stream = nullptr;
    std::size_t parts = 0;  ///< of the record, when the event was recorded
  };

  explicit Recording(void* origin) : origin_(origin), owner_(std::this_thread::get_id()) { unseen_.emplace(origin, 0); }

  bool mine() const { return owner_ == std::this_thread::get_id(); }
  bool covers(void* stream) const { return mine() && unseen_.contains(stream); }
  void add(void* stream, Work work);
  Mark mark(void* stream);
  /// `stream` waits for `event`: it joins, and has seen what the event's stream did until then.
  void wait(void* stream, const Mark& event);

  /// An error of the recording thread for what must not happen now ("device memory is allocated"); in destructors,
  /// which cannot throw, the error comes at the end.
  void refuse(const std::string& what) const;
  void refuse_at_end(const std::string& what);
  std::shared_ptr<Record> end(void* stream);

 private:
  std::string complaint(const std::string& what) const;

  void* origin_;
  std::thread::id owner_;
  std::shared_ptr<Record> record_ = std::make_shared<Record>();
  std::map<void*, std::size_t> unseen_;  ///< per stream: how long the record must have been at an event to see its work
  std::string fault_;
};

}  // namespace qtrain::emulation
