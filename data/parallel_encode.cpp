#include "data/parallel_encode.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "core/idx.h"
#include "core/os/stop.h"

namespace qtrain {
namespace {

// A block is one task's work; a wave is what all threads do between two progress reports.
constexpr std::int64_t kBlockRows = 256, kBlockBytes = 32 << 10;
constexpr int kWaveBlocks = 16;  // per thread

}  // namespace

void EncodedBlock::clear(std::int64_t first_row) {
  first = first_row;
  for (auto* numbers : {&tokens, &lengths, &starts}) numbers->clear();
  left_out.clear();
  remarks.clear();
  answer_ends.clear();
  unprinted = {};
  prompt_mismatches = joined_pairs = first_prompts = 0;
}

void EncodedBlock::append(const EncodedRow& row) {
  if (row.lacks != EncodedRow::Lack::nothing) {
    lengths.push_back(kLeftOut);
    left_out.push_back({row.lacks, row.reason});
    return;
  }
  tokens.insert(tokens.end(), row.input_ids.begin(), row.input_ids.end());
  tokens.insert(tokens.end(), row.labels.begin(), row.labels.end());
  if (row.document_starts.size() > 1) {
    starts.push_back(static_cast<std::int32_t>(lengths.size()));
    starts.push_back(static_cast<std::int32_t>(row.document_starts.size()));
    starts.insert(starts.end(), row.document_starts.begin(), row.document_starts.end());
  }
  if (row.lost > 0 || row.is_text)
    remarks.push_back({static_cast<std::int32_t>(lengths.size()), row.lost, row.is_text});
  lengths.push_back(static_cast<std::int32_t>(row.input_ids.size()));
  prompt_mismatches += row.prompt_mismatch;
  joined_pairs += row.joined_pair;
  first_prompts += row.first_prompt;
  if (!row.unprinted.empty() && unprinted.count++ == 0)
    unprinted = {.count = 1, .row = static_cast<std::int64_t>(lengths.size()) - 1, .what = row.unprinted};
  if (row.answer_end) ++answer_ends[*row.answer_end];
}

void ParallelEncoder::cut(Wave& wave, std::int64_t begin) {
  wave.count = 0;
  wave.begin = wave.end = begin;
  wave.blocks.resize(static_cast<std::size_t>(kWaveBlocks * pool_.size()));
  while (wave.end < rows_.size() && wave.count < wave.blocks.size()) {
    wave.blocks[wave.count++].clear(wave.end);
    const std::int64_t most = std::min(rows_.size(), wave.end + kBlockRows);
    for (std::int64_t bytes = 0; wave.end < most && bytes < kBlockBytes; ++wave.end) bytes += rows_.bytes(wave.end);
  }
}

void ParallelEncoder::encode(EncodedBlock& block, std::int64_t end) const {
  for (std::int64_t i = block.first; i < end; ++i) {
    throw_if_stopped();  // a wave takes seconds if texts are expensive to encode
    block.append(with_place(rows_.place(i), [&] {
      const Json row = rows_.parse(i);
      return naming_unread(rows_.source_of(i), [&] { return encoder_.encode(row); });
    }));
  }
}

// Passes on the finished wave while the next one is encoded.
void ParallelEncoder::work(Wave& encoded, const Wave& finished, const Take& take) {
  std::vector<std::exception_ptr> errors(encoded.count + 1);
  pool_.run(static_cast<std::int64_t>(errors.size()), [&](std::int64_t task, int) {
    try {
      if (task == 0) {
        for (std::size_t b = 0; b < finished.count; ++b) take(finished.blocks[b]);
      } else {
        const bool last = idx(task) == encoded.count;
        encode(encoded.blocks[idx(task) - 1], last ? encoded.end : encoded.blocks[idx(task)].first);
      }
    } catch (...) {
      errors[idx(task)] = std::current_exception();
    }
  });
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  rows_.release(encoded.begin, encoded.end);
}

void ParallelEncoder::run(const Take& take, const Progress& progress) {
  Wave encoded, finished;
  do {
    std::swap(encoded, finished);
    cut(encoded, finished.end);
    work(encoded, finished, take);
    if (progress) progress(encoded.end, rows_.size());
  } while (encoded.count > 0);
}

}  // namespace qtrain
