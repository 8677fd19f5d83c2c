#include "app/serve/cache_size.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "model/generation/continuous_batch.h"

namespace qtrain::serve {
namespace {

constexpr std::int64_t kMinContext = 64;

std::int64_t tokens_in(double bytes, const CacheMemory& memory) {
  const double tokens = std::max(0.0, bytes) / static_cast<double>(memory.per_token);
  constexpr double kMaxCacheTokens = 1LL << 50;
  return static_cast<std::int64_t>(std::min(tokens, kMaxCacheTokens)) / BatchLimits::kBlock * BatchLimits::kBlock;
}

[[noreturn]] void does_not_fit(std::int64_t tokens, const CacheMemory& memory, const std::string& remedy) {
  constexpr double kMib = 1 << 20;
  fail(ErrorKind::memory,
       {.cause = fmt::format("keys and values of {} tokens do not fit into memory: they need {:.0f} MiB, but the model "
                             "leaves {:.0f} MiB",
                             tokens, static_cast<double>(tokens) * static_cast<double>(memory.per_token) / kMib,
                             std::max(0.0, memory.left) / kMib),
        .remedy = remedy});
}

void require_memory(std::int64_t tokens, const char* flag, const CacheMemory& memory) {
  const std::int64_t most = tokens_in(memory.left, memory);
  if (tokens <= most) return;
  if (most < kMinContext) does_not_fit(tokens, memory, "--load_in_4bit makes the model smaller");
  does_not_fit(tokens, memory, fmt::format("--{} {} fits", flag, most));
}

}  // namespace

CacheSize cache_size(const CacheRequest& request, const CacheMemory& memory) {
  const std::int64_t shared = tokens_in(memory.share, memory);
  if (request.context && request.tokens && *request.tokens < *request.context)
    fail(ErrorKind::usage,
         {.cause = fmt::format("--max_context {} is more than --cache_tokens {}", *request.context, *request.tokens),
          .remedy = "the cache has to hold at least one whole answer"});
  if (request.context) require_memory(*request.context, "max_context", memory);
  if (request.tokens) require_memory(*request.tokens, "cache_tokens", memory);
  const std::int64_t room = request.tokens.value_or(shared);
  CacheSize size{.context = request.context.value_or(std::min(request.usual, room))};
  if (!request.context && !request.tokens && size.context < std::min(request.usual, kMinContext))
    does_not_fit(std::min(request.usual, kMinContext), memory,
                 "use a smaller model or --load_in_4bit, or set --max_context N if fewer tokens are enough");
  size.tokens = request.tokens.value_or(std::max(size.context, std::min(request.sequences * size.context, shared)));
  return size;
}

}  // namespace qtrain::serve
