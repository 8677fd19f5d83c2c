#pragma once
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "emulator/device.h"

namespace qtrain::emulation {

/// The work of a graph, in queueing order, which respects all waits between streams.
struct Record {
  struct Part {
    void* stream;
    Work work;
  };
  std::vector<Part> parts;

  /// Throws an internal error that names the first part where `again` differs.
  void require_same(const Record& again) const;
};

/// A recording in progress, made by one thread. Other streams join by waiting for an event of the recording, and must
/// be waited for before it ends.
class Recording {
 public:
  /// The position of an event in a recording.
  struct Mark {
    void* stream = nullptr;
    std::size_t parts = 0;  ///< length of the record when the event was recorded
  };

  explicit Recording(void* origin) : origin_(origin), owner_(std::this_thread::get_id()) { unseen_.emplace(origin, 0); }

  bool mine() const { return owner_ == std::this_thread::get_id(); }
  bool covers(void* stream) const { return mine() && unseen_.contains(stream); }
  void add(void* stream, Work work);
  Mark mark(void* stream);
  /// Makes `stream` wait for `event`: it joins the recording and is ordered after the event.
  void wait(void* stream, const Mark& event);

  /// Throws an error if the recording thread does something that is not allowed now ("device memory is allocated").
  /// Destructors cannot throw, so they call refuse_at_end, which reports it at the end.
  void refuse(const std::string& what) const;
  void refuse_at_end(const std::string& what);
  std::shared_ptr<Record> end(void* stream);

 private:
  std::string complaint(const std::string& what) const;

  void* origin_;
  std::thread::id owner_;
  std::shared_ptr<Record> record_ = std::make_shared<Record>();
  std::map<void*, std::size_t> unseen_;  ///< per stream: how long the record must have been at an event for the event
                                         ///< to cover its work
  std::string fault_;
};

}  // namespace qtrain::emulation
