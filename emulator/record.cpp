#include "emulator/record.h"

#include <algorithm>

namespace qtrain::emulation {

void Record::require_same(const Record& again) const {
  const auto name = [](const Record& r, std::size_t i) {
    return i < r.parts.size() ? "'" + r.parts[i].work.name + "'" : std::string("nothing");
  };
  for (std::size_t i = 0; i < std::max(parts.size(), again.parts.size()); ++i) {
    std::string difference;
    if (name(*this, i) != name(again, i))
      difference = name(*this, i) + " was recorded, now it is " + name(again, i);
    else if (parts[i].stream != again.parts[i].stream)
      difference = name(*this, i) + " is on another stream than it was recorded on";
    else if (parts[i].work.inputs != again.parts[i].work.inputs)
      difference = name(*this, i) + " has other arguments than were recorded";
    if (!difference.empty())
      fail(ErrorKind::internal,
           {.cause = "a graph is replayed for different work: part " + std::to_string(i) + ", " + difference});
  }
}

void Recording::add(void* stream, Work work) {
  record_->parts.push_back({stream, std::move(work)});
  unseen_[stream] = record_->parts.size();
}

Recording::Mark Recording::mark(void* stream) {
  add(stream, {.run = nullptr, .name = "event"});
  return {stream, record_->parts.size()};
}

void Recording::wait(void* stream, const Mark& event) {
  if (event.parts >= unseen_.at(event.stream)) unseen_.at(event.stream) = 0;
  add(stream, {.run = nullptr, .name = "wait"});
}

std::string Recording::complaint(const std::string& what) const {
  const std::string after = record_->parts.empty() ? "" : ", after '" + record_->parts.back().work.name + "'";
  return what + " while work is recorded" + after;
}

void Recording::refuse(const std::string& what) const {
  if (mine()) fail(ErrorKind::internal, {.cause = complaint(what)});
}

void Recording::refuse_at_end(const std::string& what) {
  if (mine() && fault_.empty()) fault_ = complaint(what);
}

std::shared_ptr<Record> Recording::end(void* stream) {
  check(stream == origin_, "a recording ends on the stream that it began on");
  if (!fault_.empty()) fail(ErrorKind::internal, {.cause = fault_});
  for (const auto& [joined, parts] : unseen_)
    if (joined != origin_ && parts > 0) refuse("the work of a second stream is not waited for");
  return record_;
}

}  // namespace qtrain::emulation
