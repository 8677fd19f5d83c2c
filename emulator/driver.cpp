#include "emulator/driver.h"

#include <string>

namespace qtrain::emulation {
namespace {

/// An error ends the work of every stream, as on a GPU; new work can be queued afterwards.
void drop_all() {
  for (const auto& queue : Driver::instance().all()) {
    queue->work.clear();
    queue->done = queue->queued;
  }
  Driver::instance().traffic().clear();
}

}  // namespace

void drain(Queue& queue, std::uint64_t ticket) {
  const Access access;
  while (queue.done < ticket) {
    const Queued work = std::move(queue.work.front());
    queue.work.pop_front();
    ++queue.done;
    const Stamp* outer = std::exchange(Driver::instance().running(), &work.at);  // the outer work waits for this
    try {
      work.run();
    } catch (...) {
      Driver::instance().running() = nullptr;
      drop_all();
      throw;
    }
    Driver::instance().running() = outer;
  }
}

void drain_for_host(Queue& queue, std::uint64_t ticket, const Progress& reached) {
  if (const std::exception_ptr kept = std::exchange(Driver::instance().kept_error(), nullptr)) {
    drop_all();
    std::rethrow_exception(kept);
  }
  drain(queue, ticket);
  Driver::instance().settle(reached);
}

void drain_quietly(Queue& queue) {
  try {
    drain_for_host(queue, queue.queued, queue.reached());
  } catch (const Error&) {
    Driver::instance().kept_error() = std::current_exception();
  }
}

void enqueue(void* stream, Work work) {
  if (Recording* recording = Driver::instance().recording().get(); recording && recording->covers(stream))
    return recording->add(stream, std::move(work));
  const auto queue = Driver::instance().queue(stream);
  if (const int selected = Driver::instance().selected(); selected != queue->device)
    fail(ErrorKind::internal,
         {.cause = work.name + " is queued on a stream of device " + std::to_string(queue->device) + " while device " +
                   std::to_string(selected) + " is the thread's"});
  Stamp at = Driver::instance().stamp(*queue);
  if (!work.touches.empty()) Driver::instance().traffic().add(at, work);
  queue->work.push_back({std::move(work.run), std::move(at)});
  ++queue->queued;
  const Timing timing = settings().streams;
  if (timing == Timing::early || (timing == Timing::random && Driver::instance().coin())) drain(*queue, queue->queued);
}

std::vector<NamedTouch> touches_beside() {
  const Stamp* running = Driver::instance().running();
  return running ? Driver::instance().traffic().beside(*running) : std::vector<NamedTouch>{};
}

}  // namespace qtrain::emulation
