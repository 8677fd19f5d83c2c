#include "train/device_batch.h"

#include <algorithm>
#include <iterator>

#include "core/rng.h"

namespace qtrain {
std::int64_t dropout_seed(std::int64_t seed, std::int64_t step, std::int64_t batch) {
  const auto w =
      philox(static_cast<std::uint64_t>(seed), static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(batch));
  return static_cast<std::int64_t>(std::uint64_t{w[0]} << 32 | w[1]);
}

BatchFeed::BatchFeed(Device device, std::int64_t most_tokens) : inputs_(device, bytes(most_tokens)) {}

// Tokens, positions, borders, target rows and their ids, and the two values of a step.
std::size_t BatchFeed::bytes(std::int64_t most_tokens) {
  constexpr std::int64_t kParts = 7, kRoundingUp = 64;
  const std::int64_t integers = 5 * most_tokens + 1;
  return static_cast<std::size_t>(integers * static_cast<std::int64_t>(sizeof(std::int32_t)) + kParts * kRoundingUp);
}

DeviceBatch BatchFeed::send(Ctx& ctx, const Batch& batch, const MicroStep& step) {
  std::vector<std::int32_t> rows, ids;
  for (std::size_t t = 0; t < batch.targets.size(); ++t)
    if (batch.targets[t] != kNoTarget) {
      rows.push_back(static_cast<std::int32_t>(t));
      ids.push_back(batch.targets[t]);
    }
  std::vector<std::int32_t> borders;  // without empty documents, so that there are at most T + 1
  std::unique_copy(batch.cu_seqlens.begin(), batch.cu_seqlens.end(), std::back_inserter(borders));
  std::int32_t longest = 0;
  for (const std::int32_t p : batch.positions) longest = std::max(longest, p + 1);
  const auto put = [&]<class T>(const std::vector<T>& v) { return inputs_.put(std::span<const T>(v)); };
  const DeviceBatch sent{.tokens = {.tokens = put(batch.tokens),
                                    .positions = put(batch.positions),
                                    .cu_seqlens = put(borders),
                                    .target_rows = put(rows),
                                    .target_ids = put(ids),
                                    .longest = longest},
                         .scale = inputs_.put(std::span(&step.scale, 1)),
                         .dropout_seed = inputs_.put(std::span(&step.dropout_seed, 1))};
  inputs_.send(ctx);
  return sent;
}

BatchSize largest_batch(const Loader& loader, const Dataset& dataset) {
  BatchSize size{.tokens = loader.max_batch_tokens(), .positions = 1, .targets = loader.max_batch_tokens()};
  for (std::int64_t i = 0; i < dataset.size(); ++i) size.positions = std::max(size.positions, dataset.length(i));
  return size;
}

}  // namespace qtrain
