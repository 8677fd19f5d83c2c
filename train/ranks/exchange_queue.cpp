#include "train/ranks/exchange_queue.h"

#include <exception>
#include <memory>
#include <utility>

namespace qtrain {

ExchangeQueue::ExchangeQueue(Device device, bool beside, std::function<void()> cancel) : cancel_(std::move(cancel)) {
  if (beside && device.kind == DeviceKind::cuda) own_.emplace(device);
}

ExchangeQueue::~ExchangeQueue() {
  if (std::uncaught_exceptions() > 0) cancel_();
  if (own_) return;  // the stream waits when it is destroyed
  try {
    last_.wait();
  } catch (const std::exception&) {  // it was already waited for, or an error is propagating
  }
}

Pending ExchangeQueue::start(Ctx& ctx, Collective& ranks, const Work& work) {
  if (own_) return own_->start(ctx, ranks, work);
  return last_ = ranks.start([&ctx, work](Collective& r) { work(ctx, r); });
}

Pending ExchangeQueue::OwnStream::start(Ctx& caller, Collective& ranks, const Work& work) {
  Stream &theirs = caller.stream(), &own = ctx.stream();
  theirs.record(reached);
  own.wait(reached);
  ranks.start([&](Collective& r) { work(ctx, r); }).wait();
  const auto done = std::make_shared<Event>(ctx.device());
  own.record(*done);
  return Pending([this, &theirs, done, number = ++begun] {
    if (number <= seen) return;
    theirs.wait(*done);
    seen = number;
  });
}

}  // namespace qtrain
