// Who gets a place in a batch, and how the prompts in it share a step.
#include <algorithm>
#include <set>
#include <tuple>

#include "model/generation/continuous_batch.h"

namespace qtrain {

std::int64_t ContinuousBatch::places_of_request(const Sequence& s) const {
  return std::ranges::count(active_, s.request.share.request,
                            [](const Sequence& a) { return a.request.share.request; });
}

std::int64_t ContinuousBatch::places_of_client(const Sequence& s) const {
  return std::ranges::count(active_, s.request.share.client, [](const Sequence& a) { return a.request.share.client; });
}

// Frees the blocks and the place; a preempted sequence resumes later where it was.
void ContinuousBatch::put_back(Sequences::iterator s) {
  give_back(*s);
  s->take = 0;
  waiting_.splice(waiting_.begin(), active_, s);
}

ContinuousBatch::Sequences::iterator ContinuousBatch::first_in_line() {
  return std::ranges::min_element(
      waiting_, {}, [this](const Sequence& s) { return std::tuple(places_of_request(s), places_of_client(s), s.id); });
}

ContinuousBatch::Sequences::iterator ContinuousBatch::last_of_the_most() {
  auto most = active_.begin();
  for (auto s = active_.begin(); s != active_.end(); ++s)
    if (places_of_request(*s) >= places_of_request(*most)) most = s;
  return most;
}

// With a difference of at least two places, the change makes the shares more equal and the next one does not undo it.
ContinuousBatch::Sequences::iterator ContinuousBatch::one_that_yields_to(const Sequence& waits) {
  const std::int64_t of_request = places_of_request(waits), of_client = places_of_client(waits);
  const auto last = last_of_the_most();
  if (last != active_.end() && places_of_request(*last) >= of_request + 2) return last;
  auto found = active_.end();
  for (auto s = active_.begin(); s != active_.end(); ++s)
    if (places_of_request(*s) > of_request && places_of_client(*s) >= of_client + 2 &&
        (found == active_.end() || places_of_client(*s) >= places_of_client(*found)))
      found = s;
  return found;
}

// Whether there are a place and blocks for all of its tokens, besides the blocks that active sequences still need for
// theirs.
bool ContinuousBatch::fits(const Sequence& s) const {
  if (active_.empty()) return true;
  std::int64_t spare = free_blocks() - BatchLimits::blocks(static_cast<std::int64_t>(s.all.size()));
  for (const Sequence& a : active_)
    spare -= BatchLimits::blocks(static_cast<std::int64_t>(a.all.size())) - static_cast<std::int64_t>(a.blocks.size());
  return active() < limits_.sequences && spare >= 0;
}

void ContinuousBatch::admit() {
  while (!waiting_.empty()) {
    const auto next = first_in_line();
    while (!fits(*next)) {
      const auto yields = one_that_yields_to(*next);
      if (yields == active_.end()) return;
      put_back(yields);
    }
    active_.splice(active_.end(), waiting_, next);
  }
}

// One token for an answer; for prompts, an equal part of a step per request, plus what other requests leave.
std::vector<std::int64_t> ContinuousBatch::shares_of_prefill() const {
  std::set<std::uint64_t> requests;
  for (const Sequence& s : active_)
    if (s.left() > 1) requests.insert(s.request.share.request);
  std::map<std::uint64_t, std::int64_t> own;
  std::int64_t left = limits_.prefill_tokens;
  const std::int64_t part = left / std::max<std::int64_t>(1, static_cast<std::int64_t>(requests.size()));
  for (const std::uint64_t request : requests) own[request] = part;
  std::vector<std::int64_t> shares;
  for (const Sequence& s : active_) {
    std::int64_t& mine = own[s.request.share.request];
    shares.push_back(s.left() > 1 ? std::min(s.left(), mine) : 1);
    if (s.left() > 1) mine -= shares.back(), left -= shares.back();
  }
  std::size_t i = 0;
  for (const Sequence& s : active_) {
    const std::int64_t more = s.left() > 1 ? std::min(s.left() - shares[i], left) : 0;
    shares[i++] += more;
    left -= more;
  }
  return shares;
}

}  // namespace qtrain
