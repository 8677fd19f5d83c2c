#include "data/loader.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>

#include "core/error.h"
#include "core/idx.h"

namespace qtrain {
namespace {

/// Calls visit(begin, end) for each document of a row.
template <class F>
void for_each_document(const RowView& row, F&& visit) {
  for (std::size_t d = 0; d < row.document_starts.size(); ++d) {
    const bool last = d + 1 == row.document_starts.size();
    visit(std::int64_t{row.document_starts[d]}, last ? row.size() : std::int64_t{row.document_starts[d + 1]});
  }
}

void append_document(Batch& batch, std::span<const std::int32_t> ids, std::span<const std::int32_t> labels) {
  for (std::size_t t = 0; t < ids.size(); ++t) {
    const std::int32_t target = t + 1 < ids.size() ? labels[t + 1] : kNoTarget;
    batch.tokens.push_back(ids[t]);
    batch.targets.push_back(target);
    batch.positions.push_back(static_cast<std::int32_t>(t));
    batch.target_count += target != kNoTarget;
  }
  batch.cu_seqlens.push_back(static_cast<std::int32_t>(batch.tokens.size()));
  batch.longest = std::max(batch.longest, static_cast<std::int64_t>(ids.size()));
}

/// A mapped file may have been damaged since its rows were prepared.
void require_ids(const RowView& row, std::int32_t largest) {
  const auto fine = [&](std::int32_t id) { return id >= 0 && id <= largest; };
  if (std::ranges::all_of(row.input_ids, fine) &&
      std::ranges::all_of(row.labels, [&](std::int32_t label) { return label == kNoTarget || fine(label); }))
    return;
  fail(ErrorKind::input, {.cause = "a prepared row contains an invalid token id: the token cache is damaged",
                          .remedy = "Delete the token cache folder, or set token_cache_dir to \"\"."});
}

}  // namespace

Batch make_batch(const Dataset& dataset, const std::vector<std::int64_t>& rows) {
  Batch batch;
  batch.rows = static_cast<std::int64_t>(rows.size());
  batch.cu_seqlens.push_back(0);
  std::int64_t tokens = 0;
  for (const std::int64_t r : rows) tokens += dataset.length(r);
  if (tokens > std::int64_t{1} << 30)
    fail(ErrorKind::usage, {.cause = "a micro-batch of " + std::to_string(tokens) + " tokens is too large",
                            .remedy = "Set max_length, or lower per_device_train_batch_size."});
  for (auto* field : {&batch.tokens, &batch.targets, &batch.positions}) field->reserve(idx(tokens));
  for (const std::int64_t r : rows) {
    const RowView row = dataset.row(r);
    require_ids(row, dataset.statistics().max_token_id);
    batch.row_sizes.push_back(row.size());
    for_each_document(row, [&](std::int64_t begin, std::int64_t end) {
      append_document(batch, row.input_ids.subspan(idx(begin), idx(end - begin)),
                      row.labels.subspan(idx(begin), idx(end - begin)));
    });
  }
  return batch;
}

Loader::Loader(const Dataset& dataset, const LoaderOptions& options) : dataset_(dataset), options_(options) {
  if (options.batch_size < 1 || options.world < 1)
    fail(ErrorKind::usage, {.cause = "the batch size and the number of processes must be at least 1"});
  check(options.rank >= 0 && options.rank < options.world, "rank outside the world");
  for (std::int64_t i = 0; i < dataset.size(); ++i) {
    lengths_.push_back(dataset.length(i));
    target_counts_.push_back(dataset.targets(i));
  }
}

std::int64_t Loader::batches_per_epoch() const {
  const std::int64_t global = options_.batch_size * options_.world;
  return (dataset_.size() + (options_.drop_last ? 0 : global - 1)) / global;
}

Loader::Order Loader::order(std::int64_t epoch) const {
  const std::lock_guard lock(mutex_);
  KeptOrder& kept = kept_[idx(epoch) % kept_.size()];
  if (kept.epoch != epoch) {
    kept.order = std::make_shared<const std::vector<std::int64_t>>(epoch_order(lengths_, epoch, options_.sampler));
    kept.epoch = epoch;
  }
  return kept.order;
}

std::vector<std::int64_t> Loader::rows_between(std::int64_t epoch, std::int64_t begin, std::int64_t end) const {
  const Order all = order(epoch);
  const auto n = static_cast<std::int64_t>(all->size());
  return {all->begin() + std::min(begin, n), all->begin() + std::min(end, n)};
}

std::vector<std::int64_t> Loader::rows_of(std::int64_t epoch, std::int64_t index) const {
  check(epoch >= 0 && index >= 0 && index < batches_per_epoch(), "batch outside the epoch");
  const std::int64_t begin = first_row(index);
  return rows_between(epoch, begin, begin + options_.batch_size);
}

Batch Loader::batch(std::int64_t epoch, std::int64_t index) const {
  return make_batch(dataset_, rows_of(epoch, index));
}

std::int64_t Loader::global_sum(std::int64_t epoch, std::int64_t index,
                                const std::vector<std::int64_t>& per_row) const {
  const std::int64_t global = options_.batch_size * options_.world;
  std::int64_t sum = 0;
  for (const std::int64_t row : rows_between(epoch, index * global, (index + 1) * global)) sum += per_row[idx(row)];
  return sum;
}

std::int64_t Loader::global_targets(std::int64_t epoch, std::int64_t index) const {
  return global_sum(epoch, index, target_counts_);
}

std::int64_t Loader::global_tokens(std::int64_t epoch, std::int64_t index) const {
  return global_sum(epoch, index, lengths_);
}

std::int64_t Loader::global_batches(std::int64_t index) const {
  const std::int64_t left = dataset_.size() - index * options_.batch_size * options_.world;
  return std::min<std::int64_t>(options_.world, (left + options_.batch_size - 1) / options_.batch_size);
}

std::int64_t Loader::max_batch_tokens() const {
  std::vector<std::int64_t> longest = lengths_;
  const auto count = static_cast<std::ptrdiff_t>(std::min<std::int64_t>(options_.batch_size, dataset_.size()));
  std::partial_sort(longest.begin(), longest.begin() + count, longest.end(), std::greater<>());
  return std::accumulate(longest.begin(), longest.begin() + count, std::int64_t{0});
}

}  // namespace qtrain
