#include "data/source/growth_limit.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace qtrain {

GrowthLimit::GrowthLimit(std::uint64_t stored, std::string remedy, Allowance allowance)
    : stored_(stored),
      allowance_(allowance),
      most_(std::max(allowance.free_bytes, stored * allowance.times)),
      remedy_(std::move(remedy)) {}

void GrowthLimit::add(std::uint64_t bytes) {
  if (bytes <= most_ - made_) {
    made_ += bytes;
    return;
  }
  fail(ErrorKind::input,
       {.cause = fmt::format("{} bytes would be decoded to more than {}; the limit is {} MiB, or {} times the stored "
                             "size if that is more, since files beyond it are usually made to exhaust memory or time",
                             stored_, most_, allowance_.free_bytes >> 20, allowance_.times),
        .remedy = remedy_});
}

}  // namespace qtrain
