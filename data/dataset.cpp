#include <algorithm>
#include <cmath>
#include <exception>
#include <map>
#include <numeric>
#include <utility>

#include "data/encode.h"
#include "data/index.h"
#include "data/rows.h"
#include "data/sampler.h"

namespace qtrain {
namespace {

constexpr std::int64_t kBlockRows = 32;                                      // rows of one task
constexpr std::int64_t kWaveBlocks = 64;                                     // tasks between two reports of progress
constexpr std::uint32_t kShuffleRows = 1, kShufflePacked = 2, kHoldOut = 3;  // salts of permutations

/// Encoded rows one behind the other.
struct Documents {
  std::vector<std::int32_t> input_ids, labels;
  std::vector<std::int64_t> offsets{0};
  std::map<std::int64_t, std::vector<std::int32_t>> starts;  // of rows that have several documents themselves
  std::int64_t prompt_mismatches = 0;

  std::int64_t size() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
  std::int64_t length(std::int64_t i) const { return offsets[idx(i) + 1] - offsets[idx(i)]; }

  void append(EncodedRow row) {
    input_ids.insert(input_ids.end(), row.input_ids.begin(), row.input_ids.end());
    labels.insert(labels.end(), row.labels.begin(), row.labels.end());
    if (row.document_starts.size() > 1) starts[size()] = std::move(row.document_starts);
    offsets.push_back(static_cast<std::int64_t>(input_ids.size()));
    prompt_mismatches += row.prompt_mismatch;
  }
  void append(Documents block) {
    const std::int64_t base = offsets.back();
    for (auto& [row, at] : block.starts) starts[size() + row] = std::move(at);
    input_ids.insert(input_ids.end(), block.input_ids.begin(), block.input_ids.end());
    labels.insert(labels.end(), block.labels.begin(), block.labels.end());
    for (std::size_t i = 1; i < block.offsets.size(); ++i) offsets.push_back(base + block.offsets[i]);
    prompt_mismatches += block.prompt_mismatches;
  }
};

void check_options(const DatasetOptions& o) {
  if (o.max_length && *o.max_length < 1)
    fail(ErrorKind::usage, {.cause = "max_length must be at least 1", .remedy = "Use null for no limit."});
  if (o.packing != Packing::none && !o.max_length)
    fail(ErrorKind::usage, {.cause = "packing needs max_length", .remedy = "Set max_length."});
  if (o.response_template.empty() && !o.instruction_template.empty())
    fail(ErrorKind::usage, {.cause = "instruction_template is set, but no response_template",
                            .remedy = "Say with response_template where answers begin."});
  if (!o.response_template.empty() && (o.assistant_only_loss || o.last_turn_only_loss))
    fail(ErrorKind::usage, {.cause = "response_template and a loss on the assistant's turns are both asked for",
                            .remedy = "Keep one: assistant_only_loss finds answers by the chat template."});
  if (o.pack_batch_rows < 0 || o.max_rows < 0)
    fail(ErrorKind::usage, {.cause = "a number of rows must not be negative"});
}

/// Encodes rows in blocks, a wave of blocks at a time.
class ParallelEncoder {
 public:
  ParallelEncoder(const RawRows& rows, const RowEncoder& encoder, ThreadPool& pool)
      : rows_(rows), encoder_(encoder), pool_(pool) {}

  template <class Progress>
  Documents encode_all(const Progress& progress) {
    Documents documents;
    for (std::int64_t first = 0; first < rows_.size(); first += kWaveRows) {
      for (Documents& block : encode_wave(first)) documents.append(std::move(block));
      if (progress) progress(std::min(first + kWaveRows, rows_.size()), rows_.size());
    }
    return documents;
  }

 private:
  static constexpr std::int64_t kWaveRows = kBlockRows * kWaveBlocks;

  /// Of several errors the one of the first row is thrown, whatever thread met it first.
  std::vector<Documents> encode_wave(std::int64_t first) {
    const std::int64_t count = std::min(kWaveRows, rows_.size() - first);
    std::vector<Documents> blocks(idx((count + kBlockRows - 1) / kBlockRows));
    std::vector<std::exception_ptr> errors(blocks.size());
    pool_.run(static_cast<std::int64_t>(blocks.size()), [&](std::int64_t block, int) {
      try {
        encode_block(first + block * kBlockRows, blocks[idx(block)]);
      } catch (...) {
        errors[idx(block)] = std::current_exception();
      }
    });
    for (const std::exception_ptr& error : errors)
      if (error) std::rethrow_exception(error);
    return blocks;
  }
  void encode_block(std::int64_t begin, Documents& block) {
    for (std::int64_t i = begin; i < std::min(begin + kBlockRows, rows_.size()); ++i)
      block.append(with_place(rows_.place(i), [&] { return encoder_.encode(rows_.parse(i)); }));
  }

  const RawRows& rows_;
  const RowEncoder& encoder_;
  ThreadPool& pool_;
};

/// Documents in the order in which they are packed.
std::vector<std::int64_t> packing_order(std::int64_t n, const DatasetOptions& options) {
  if (options.shuffle_dataset) return random_permutation(n, {.seed = options.seed, .salt = kShuffleRows});
  std::vector<std::int64_t> order(idx(n));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

std::vector<PackedRow> packed_rows(const Documents& documents, const DatasetOptions& options) {
  const std::vector<std::int64_t> order = packing_order(documents.size(), options);
  const std::int64_t batch =
      options.pack_batch_rows > 0 ? options.pack_batch_rows : std::max<std::int64_t>(1, documents.size());
  std::vector<PackedRow> rows;
  for (std::int64_t first = 0; first < documents.size(); first += batch) {
    const std::int64_t count = std::min(batch, documents.size() - first);
    std::vector<std::int64_t> lengths;
    for (std::int64_t i = 0; i < count; ++i) lengths.push_back(documents.length(order[idx(first + i)]));
    for (PackedRow& row : pack(options.packing, lengths, *options.max_length)) {
      for (DocumentSlice& piece : row) piece.document = order[idx(first + piece.document)];
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

/// One row per document, cut to max_length; rows that the cut or a mask left without any label are dropped, as TRL does
/// where max_length is set.
std::vector<PackedRow> single_rows(const Documents& documents, const DatasetOptions& options, std::int64_t& dropped) {
  std::vector<PackedRow> rows;
  for (std::int64_t d = 0; d < documents.size(); ++d) {
    const std::int64_t size = std::min(documents.length(d), options.max_length.value_or(documents.length(d)));
    const std::int64_t first = options.kept_end == KeptEnd::end ? documents.length(d) - size : 0;
    const auto begin = documents.labels.begin() + documents.offsets[idx(d)] + first;
    const bool learns = std::any_of(begin, begin + size, [](std::int32_t label) { return label != kNoTarget; });
    if (learns || !options.max_length)
      rows.push_back({{d, first, size}});
    else
      ++dropped;
  }
  return rows;
}

/// Copies a packed row's tokens into the data set. With borders, each piece is a document of its own and the label of
/// its first token is no target.
class RowWriter {
 public:
  RowWriter(const Documents& documents, const DatasetOptions& options, Dataset& dataset)
      : documents_(documents),
        dataset_(dataset),
        packed_(options.packing != Packing::none),
        borders_(options.packing != Packing::wrapped || options.isolate_wrapped) {}

  void write(const PackedRow& row) {
    ids_.clear();
    labels_.clear();
    starts_.clear();
    for (const DocumentSlice& piece : row) add(piece);
    if (!borders_) starts_.assign(ids_.empty() ? 0 : 1, 0);
    dataset_.append({.input_ids = ids_, .labels = labels_, .document_starts = starts_});
  }

 private:
  void add(const DocumentSlice& piece) {
    const auto begin = idx(documents_.offsets[idx(piece.document)] + piece.begin), size = idx(piece.size);
    const std::size_t at = ids_.size();
    if (size > 0) starts_.push_back(static_cast<std::int32_t>(at));
    const auto ids = std::span(documents_.input_ids).subspan(begin, size);
    const auto labels = std::span(documents_.labels).subspan(begin, size);
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    labels_.insert(labels_.end(), labels.begin(), labels.end());
    if (packed_ && borders_ && size > 0) labels_[at] = kNoTarget;
    if (packed_) return;
    if (const auto own = documents_.starts.find(piece.document); own != documents_.starts.end())
      for (const std::int32_t start : own->second)
        if (start > piece.begin && start < piece.begin + piece.size)
          starts_.push_back(static_cast<std::int32_t>(start - piece.begin));
  }

  const Documents& documents_;
  Dataset& dataset_;
  bool packed_, borders_;
  std::vector<std::int32_t> ids_, labels_, starts_;
};

void measure(const Documents& documents, const DatasetOptions& options, DatasetStatistics& statistics) {
  const bool cuts = options.max_length && (options.packing == Packing::none || options.packing == Packing::bfd);
  statistics.source_rows = documents.size();
  statistics.prompt_mismatches = documents.prompt_mismatches;
  for (std::int64_t d = 0; d < documents.size(); ++d) {
    const std::int64_t length = documents.length(d);
    statistics.lengths.push_back(static_cast<std::int32_t>(length));
    if (!cuts || length <= *options.max_length) continue;
    ++statistics.truncated_rows;
    statistics.truncated_tokens += length - *options.max_length;
  }
}

void check_result(const Dataset& dataset, const RawRows& rows) {
  if (rows.size() == 0) fail(ErrorKind::input, {.cause = "the data has no rows", .remedy = "Check dataset_name."});
  if (dataset.statistics().target_tokens == 0)
    fail(ErrorKind::input,
         {.cause = "no token of the data is a target: masks or max_length leave nothing to learn from",
          .place = rows.place(0),
          .remedy = "Raise max_length, or check assistant_only_loss, completion_only_loss, response_template and the "
                    "labels."});
}

}  // namespace

Dataset build_dataset(const RawRows& all, const DatasetOptions& options, const TextTools& tools, ThreadPool& pool) {
  check_options(options);
  const RawRows rows = options.max_rows > 0 ? all.slice(0, std::min(options.max_rows, all.size())) : all;
  const RowEncoder encoder(options, tools);
  const Documents documents = ParallelEncoder(rows, encoder, pool).encode_all(options.progress);
  Dataset dataset;
  measure(documents, options, dataset.statistics());
  const bool packs = options.packing != Packing::none;
  const std::vector<PackedRow> packed =
      packs ? packed_rows(documents, options) : single_rows(documents, options, dataset.statistics().dropped_rows);
  const auto n = static_cast<std::int64_t>(packed.size());
  dataset.reserve(n, documents.offsets.back());
  RowWriter writer(documents, options, dataset);
  if (options.shuffle_dataset) {
    for (const std::int64_t i : random_permutation(n, {.seed = options.seed, .salt = kShufflePacked}))
      writer.write(packed[idx(i)]);
  } else {
    for (const PackedRow& row : packed) writer.write(row);
  }
  check_result(dataset, rows);
  return dataset;
}

Dataset build_dataset(const DatasetOptions& options, const TextTools& tools, ThreadPool& pool) {
  return build_dataset(RawRows(resolve_data_files(options.files, options.split)), options, tools, pool);
}

HeldOut hold_out(const RawRows& rows, double share, std::uint64_t seed) {
  if (!(share > 0 && share < 1) || rows.size() < 2)
    fail(ErrorKind::usage, {.cause = "a held-out share lies between 0 and 1, of at least two rows"});
  const auto wanted = static_cast<std::int64_t>(std::ceil(share * static_cast<double>(rows.size())));
  const std::int64_t count = std::clamp<std::int64_t>(wanted, 1, rows.size() - 1);
  std::vector<std::int64_t> order = random_permutation(rows.size(), {.seed = seed, .salt = kHoldOut});
  std::sort(order.begin(), order.begin() + count);
  std::sort(order.begin() + count, order.end());
  return {.train = rows.select({order.begin() + count, order.end()}),
          .evaluation = rows.select({order.begin(), order.begin() + count})};
}

}  // namespace qtrain
