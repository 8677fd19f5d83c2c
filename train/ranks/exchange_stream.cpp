#include "train/ranks/exchange_stream.h"

#include <memory>

namespace qtrain {

bool exchanges_beside(const Transformer& model) {
  const Sharding& s = model.options().sharding;
  const bool exchanges = s.ranks > 1 || s.divides_trained();
  const bool takes_turns = model.device().kind == DeviceKind::cuda && model.options().context.is_shared();
  return exchanges && s.buffers > 1 && !takes_turns;
}

Pending ExchangeStream::start(Ctx& ctx, Collective& ranks, const Work& work) {
  Stream &caller = ctx.stream(), &own = ctx_.stream();
  caller.record(reached_);
  own.wait(reached_);
  ranks.start([&](Collective& r) { work(ctx_, r); }).wait();
  const auto done = std::make_shared<Event>(ctx.device());
  own.record(*done);
  return Pending([this, &caller, done, number = ++begun_] {
    if (number <= seen_) return;
    caller.wait(*done);
    seen_ = number;
  });
}

}  // namespace qtrain
