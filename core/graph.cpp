#include "core/graph.h"

#include <algorithm>
#include <utility>

#include "core/device/backend.h"

namespace qtrain {

bool is_recorded(const Stream& stream) {
  return stream.device().kind == DeviceKind::cuda && cuda::is_recorded(stream.handle());
}

Graph::Graph(Stream& stream, const char* name, const std::function<void()>& work) : name_(name) {
  check(stream.device().kind == DeviceKind::cuda, "only the work of a CUDA device can be recorded");
  cuda::begin_record(stream.handle());
  try {
    work();
  } catch (const Error& e) {
    cuda::drop_record(stream.handle());
    ErrorText text = e.text();
    if (text.place.empty()) text.place = std::string("recording '") + name + "' after " + stream.recent_launches();
    fail(e.kind(), text);
  } catch (...) {
    cuda::drop_record(stream.handle());
    throw;
  }
  *this = Graph(cuda::end_record(stream.handle()), name);
}

Graph::Graph(void* handle, const char* name) : name_(name) {
  if (handle) handle_ = {handle, cuda::destroy_graph};
}

Graph Graph::cut(Stream& stream, const char* name) {
  Graph part(cuda::end_record(stream.handle()), name);
  cuda::begin_record(stream.handle());
  return part;
}

void Graph::replay(Stream& stream) const {
  if (!handle_) return;
  const Stream::Launch launch(stream, name_);
  cuda::replay(handle_.get(), stream.handle());
}

void Graph::require_same(const Graph& again) const {
  check(!handle_ == !again.handle_, "a graph is replayed for different work: one of the two is empty");
  if (handle_) cuda::require_same_graph(handle_.get(), again.handle_.get());
}

GraphCache::Entry& GraphCache::entry(const Key& key) {
  const auto at = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.key == key; });
  if (at != entries_.end()) {
    entries_.splice(entries_.begin(), entries_, at);
    return entries_.front();
  }
  if (entries_.size() == max_) {
    records_ -= entries_.back().parts.empty() ? 0 : 1;
    entries_.pop_back();
  }
  entries_.push_front({.key = key});
  return entries_.front();
}

std::vector<GraphCache::Part> GraphCache::record(Stream& stream, const char* name, const std::function<void()>& work) {
  recording_.emplace(Recording{stream, name});
  try {
    const Graph last(stream, name, work);
    recording_->parts.push_back({last});
  } catch (...) {
    recording_.reset();
    throw;
  }
  std::vector<Part> parts = std::move(recording_->parts);
  recording_.reset();
  return parts;
}

void GraphCache::between(const std::function<void()>& act) {
  if (!recording_) return act();
  recording_->parts.push_back({Graph::cut(recording_->stream, recording_->name), act});
}

void GraphCache::require_same(const std::vector<Part>& parts, const std::vector<Part>& again) {
  check(parts.size() == again.size(), "a graph is replayed for different work: the number of parts differs");
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i].graph.require_same(again[i].graph);
}

void GraphCache::run(Stream& stream, const char* name, const Key& key, const std::function<void()>& work) {
  if (max_ == 0 || stream.is_observed()) return work();  // an observer needs individual launches
  Entry& e = entry(key);
  if (!e.seen) {
    work();
    e.seen = true;
    return;
  }
  if (e.parts.empty()) {
    e.parts = record(stream, name, work);
    ++records_;
  } else if (cuda::compares_graphs()) {
    require_same(e.parts, record(stream, name, work));
  }
  for (const Part& part : e.parts) {
    part.graph.replay(stream);
    if (part.act) part.act();
  }
  ++replays_;
}

}  // namespace qtrain
