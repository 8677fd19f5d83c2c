#include "train/step/device_batch.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "core/rng.h"
#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"

namespace qtrain {
namespace {

struct Contents {
  std::vector<std::int32_t> tokens, positions, borders, rows, ids;
  TokenNoise noise = {};  ///< empty: none
  std::int64_t longest = 0;
};

Contents contents_of(const Batch& batch, const MicroStep& step) {
  Contents c{.tokens = batch.tokens, .positions = batch.positions};
  if (step.noise) c.noise = noise_of(batch, *step.noise);
  for (std::size_t t = 0; t < batch.targets.size(); ++t)
    if (batch.targets[t] != kNoTarget) {
      c.rows.push_back(static_cast<std::int32_t>(t));
      c.ids.push_back(batch.targets[t]);
    }
  // Drops empty documents, so that there are at most T + 1 borders.
  std::unique_copy(batch.cu_seqlens.begin(), batch.cu_seqlens.end(), std::back_inserter(c.borders));
  for (const std::int32_t p : batch.positions) c.longest = std::max<std::int64_t>(c.longest, p + 1);
  return c;
}

/// Pads `n` to a multiple of `most` / `parts`, which is rounded up to a multiple of 8.
std::int64_t padded_to_part(std::int64_t n, std::int64_t most, std::int64_t parts) {
  constexpr std::int64_t kAlign = 8;
  const std::int64_t unit = (most + parts * kAlign - 1) / (parts * kAlign) * kAlign;
  return std::min((n + unit - 1) / unit * unit, most);
}

/// Numbers of documents are padded to a power of two.
std::int64_t document_class(std::int64_t n, std::int64_t most) {
  return std::min(static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(n))), most);
}

template <class T>
std::int64_t size_of(const std::vector<T>& v) {
  return static_cast<std::int64_t>(v.size());
}

void fill_up(std::vector<std::int32_t>& v, std::int64_t n, std::int32_t value) {
  v.resize(static_cast<std::size_t>(n), value);
}

/// Calls act(part, of) for each of the vectors that have an entry per token: the one in `part`, and the one in `of`.
template <class F>
void for_each_of_tokens(Contents& part, const Contents& of, F&& act) {
  act(part.tokens, of.tokens);
  act(part.positions, of.positions);
  if (of.noise.keys.empty()) return;
  act(part.noise.keys, of.noise.keys);
  act(part.noise.magnitudes, of.noise.magnitudes);
}

/// Pads to size classes with tokens outside documents and empty documents.
Contents with_more_tokens(Contents c, std::int64_t most) {
  const std::int64_t tokens = token_class(size_of(c.tokens), most);
  for_each_of_tokens(c, c, [&](auto& v, const auto&) { v.resize(static_cast<std::size_t>(tokens)); });
  fill_up(c.borders, document_class(size_of(c.borders) - 1, most) + 1, c.borders.back());
  return c;
}
Contents with_more_targets(Contents c) {
  const std::int64_t targets = target_class(size_of(c.rows), size_of(c.tokens));
  fill_up(c.rows, targets, ops::kNoRow);
  fill_up(c.ids, targets, ops::kNoClass);
  return c;
}

// This rank's pieces of the tokens and targets, concatenated. Borders are those of the whole batch.
Contents own_part(const Contents& all, const ContextShare& share) {
  const std::int64_t tokens = size_of(all.tokens), count = share.piece_tokens(tokens);
  Contents own{.tokens = {}, .positions = {}, .borders = all.borders, .rows = {}, .ids = {}, .longest = all.longest};
  for (int which = 0; which < ContextShare::kPieces; ++which) {
    const std::int64_t first = share.piece(which) * count, begin = std::min(first, tokens),
                       end = std::min(first + count, tokens);
    for_each_of_tokens(own, all, [&](auto& to, const auto& from) {
      to.insert(to.end(), from.begin() + begin, from.begin() + end);
      to.resize(static_cast<std::size_t>((which + 1) * count));
    });
    for (std::size_t i = 0; i < all.rows.size(); ++i)
      if (all.rows[i] >= begin && all.rows[i] < end) {
        own.rows.push_back(static_cast<std::int32_t>(all.rows[i] - first + which * count));
        own.ids.push_back(all.ids[i]);
      }
  }
  return own;
}

// On a CPU every token must belong to a document, including the padding of the last piece.
Contents in_documents(Contents all, std::int64_t tokens) {
  if (tokens > size_of(all.tokens)) all.borders.push_back(static_cast<std::int32_t>(tokens));
  return all;
}

/// Pads as the feed's sizes say, and cuts out this rank's part.
Contents prepared(Contents c, const BatchFeed::Options& o) {
  if (o.sizes == Sizes::exact) {
    if (!o.share.is_shared()) return c;
    const std::int64_t tokens = o.share.all_tokens(size_of(c.tokens));
    return own_part(in_documents(std::move(c), tokens), o.share);
  }
  c = with_more_tokens(std::move(c), o.max_tokens);
  if (o.share.is_shared()) c = own_part(c, o.share);
  return with_more_targets(std::move(c));
}

}  // namespace

std::int64_t token_class(std::int64_t n, std::int64_t most) {
  return padded_to_part(n, most, 16);
}

std::int64_t target_class(std::int64_t n, std::int64_t tokens) {
  return padded_to_part(n, tokens, 6);
}

std::int64_t dropout_seed(std::int64_t seed, std::int64_t step, std::int64_t batch) {
  const auto w =
      philox(static_cast<std::uint64_t>(seed), static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(batch));
  return static_cast<std::int64_t>(std::uint64_t{w[0]} << 32 | w[1]);
}

BatchFeed::BatchFeed(Device device, const Options& options)
    : inputs_(device, bytes(options.max_tokens, options.share, options.noise)), options_(options) {}

// Tokens, positions, borders, target rows and ids, and the three values of a MicroStep; keys of 8 bytes and magnitudes
// of noise.
std::size_t BatchFeed::bytes(std::int64_t max_tokens, const ContextShare& share, Noise noise) {
  const std::int64_t parts = noise == Noise::none ? 8 : 10, per_token = noise == Noise::none ? 4 : 7;
  constexpr std::int64_t kRoundingUp = 64;
  const std::int64_t integers = per_token * share.own_tokens(max_tokens) + share.all_tokens(max_tokens) + 1;
  return static_cast<std::size_t>(integers * static_cast<std::int64_t>(sizeof(std::int32_t)) + parts * kRoundingUp);
}

DeviceBatch BatchFeed::send(Ctx& ctx, const Batch& batch, const MicroStep& step) {
  check(!step.noise || options_.noise != Noise::none, "a batch has noise, but its feed has no room for it");
  const Contents c = prepared(contents_of(batch, step), options_);
  const auto put = [&]<class T>(const std::vector<T>& v) { return inputs_.put(std::span<const T>(v)); };
  DeviceBatch sent{.tokens = {.tokens = put(c.tokens),
                              .positions = put(c.positions),
                              .cu_seqlens = put(c.borders),
                              .target_rows = put(c.rows),
                              .target_ids = put(c.ids),
                              .longest = c.longest},
                   .scale = inputs_.put(std::span(&step.scale, 1)),
                   .router_scale = inputs_.put(std::span(&step.router_scale, 1)),
                   .dropout_seed = inputs_.put(std::span(&step.dropout_seed, 1))};
  if (step.noise) sent.noise = {.keys = put(c.noise.keys), .magnitudes = put(c.noise.magnitudes)};
  inputs_.send(ctx);
  return sent;
}

BatchSize largest_batch(const Loader& loader, const Dataset& dataset) {
  BatchSize size{.tokens = loader.max_batch_tokens(), .positions = 1, .targets = loader.max_batch_tokens()};
  for (std::int64_t i = 0; i < dataset.size(); ++i) size.positions = std::max(size.positions, dataset.length(i));
  return size;
}

BatchSize own_size(const BatchSize& all, const ContextShare& share) {
  const std::int64_t tokens = share.own_tokens(all.tokens);
  return {.tokens = tokens, .positions = all.positions, .targets = std::min(all.targets, tokens)};
}

}  // namespace qtrain
