#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/parallel.h"
#include "data/encode.h"

namespace qtrain {

/// Consecutive rows encoded by one thread.
struct EncodedBlock {
  std::int64_t first = 0;             ///< index of the first row
  std::vector<std::int32_t> tokens;   ///< for each row its input_ids, then its labels
  std::vector<std::int32_t> lengths;  ///< tokens of each row, or kLeftOut
  /// For each row with several documents: row (relative to `first`), number of starts, the starts.
  std::vector<std::int32_t> starts;
  struct LeftOut {
    EncodedRow::Lack lacks;
    std::string reason;
  };
  std::vector<LeftOut> left_out;  ///< in row order
  std::int64_t prompt_mismatches = 0, joined_pairs = 0, first_prompts = 0;
  /// Rows of which the chat template drops something: number, first row (relative to `first`), and what.
  struct Unprinted {
    std::int64_t count = 0, row = 0;
    std::string what;
  } unprinted;
  std::map<std::int32_t, std::int64_t> answer_ends;  ///< number of rows by the token that ends their answer

  /// Further facts about rows (relative to `first`), in row order.
  struct Remark {
    std::int32_t row;
    std::int32_t lost;  ///< tokens already truncated
    bool is_text;       ///< may become several rows
  };
  std::vector<Remark> remarks;

  static constexpr std::int32_t kLeftOut = -1;

  void clear(std::int64_t first_row);
  void append(const EncodedRow& row);
};

/// Encodes all rows on all threads and passes on the blocks one at a time in row order. Holds a few MB of rows at once.
/// If several rows fail, throws the error of the first one, independent of timing.
class ParallelEncoder {
 public:
  using Take = std::function<void(const EncodedBlock&)>;
  using Progress = std::function<void(std::int64_t done, std::int64_t rows)>;

  ParallelEncoder(const RawRows& rows, const RowEncoder& encoder, ThreadPool& pool)
      : rows_(rows), encoder_(encoder), pool_(pool) {}
  /// `progress` (may be empty) is called on the caller's thread, `take` on any thread.
  void run(const Take& take, const Progress& progress);

 private:
  struct Wave {
    std::vector<EncodedBlock> blocks;
    std::size_t count = 0;  // blocks in use
    std::int64_t begin = 0, end = 0;
  };
  void cut(Wave& wave, std::int64_t begin);
  void work(Wave& encoded, const Wave& finished, const Take& take);
  void encode(EncodedBlock& block, std::int64_t end) const;

  const RawRows& rows_;
  const RowEncoder& encoder_;
  ThreadPool& pool_;
};

}  // namespace qtrain
