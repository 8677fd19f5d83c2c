#include "core/graph.h"

#include <algorithm>

#include "core/device/backend.h"

namespace qtrain {

Graph::Graph(Stream& stream, const char* name, const std::function<void()>& work) : name_(name) {
  check(stream.device().kind == DeviceKind::cuda, "only the work of a CUDA device is recorded");
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
  handle_ = {cuda::end_record(stream.handle()), cuda::destroy_graph};
}

void Graph::replay(Stream& stream) const {
  stream.launched(name_);
  cuda::replay(handle_.get(), stream.handle());
}

void Graph::require_same(const Graph& again) const {
  cuda::require_same_graph(handle_.get(), again.handle_.get());
}

GraphCache::Entry& GraphCache::entry(const Key& key) {
  const auto at = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.key == key; });
  if (at != entries_.end()) {
    entries_.splice(entries_.begin(), entries_, at);
    return entries_.front();
  }
  if (entries_.size() == max_) {
    records_ -= entries_.back().graph ? 1 : 0;
    entries_.pop_back();
  }
  entries_.push_front({.key = key});
  return entries_.front();
}

void GraphCache::run(Stream& stream, const char* name, const Key& key, const std::function<void()>& work) {
  if (max_ == 0) return work();
  Entry& e = entry(key);
  if (!e.seen) {
    work();
    e.seen = true;
    return;
  }
  if (!e.graph) {
    e.graph.emplace(stream, name, work);
    ++records_;
  } else if (cuda::compares_graphs()) {
    e.graph->require_same(Graph(stream, name, work));
  }
  e.graph->replay(stream);
  ++replays_;
}

}  // namespace qtrain
