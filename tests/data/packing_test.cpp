#include "data/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "core/formats/json.h"
#include "core/rng.h"
#include "tests/data/support.h"

namespace qtrain {
namespace {

using Rows = std::vector<std::vector<DocumentSlice>>;

Rows rows_of(const PackedRows& packed) {
  Rows rows;
  for (std::int64_t i = 0; i < packed.size(); ++i) rows.emplace_back(packed[i].begin(), packed[i].end());
  return rows;
}

TEST(Packing, RowsHoldThePiecesThatTrlPutsThere) {
  for (const Json& golden : read_json(test::golden_folder() / "packing.json")) {
    Rows expected;
    for (const Json& row : golden["rows"]) {
      expected.emplace_back();
      for (const Json& piece : row) expected.back().push_back({piece[0], piece[1], piece[2]});
    }
    const auto lengths = golden["lengths"].get<std::vector<std::int32_t>>();
    const auto strategy = golden["strategy"].get<std::string>();
    EXPECT_EQ(rows_of(pack(test::packing_named(strategy), lengths, golden["row_length"])), expected)
        << strategy << " of " << lengths.size() << " documents";
  }
}

TEST(Packing, WithoutPackingEachDocumentIsARowCutToItsLength) {
  const std::vector<std::int32_t> lengths = {3, 9, 0};
  EXPECT_EQ(rows_of(pack(Packing::none, lengths, 4)), (Rows{{{0, 0, 3}}, {{1, 0, 4}}, {{2, 0, 0}}}));
}

/// Lengths with many equal ones, zeros, and some longer than a row.
std::vector<std::int32_t> random_lengths(std::uint64_t seed) {
  const auto size = philox(seed, 0, 0);
  std::vector<std::int32_t> lengths(size[0] % 200);
  for (std::size_t i = 0; i < lengths.size(); ++i)
    lengths[i] = static_cast<std::int32_t>(philox(seed, 1, i)[0] % (1 + size[1] % 60));
  return lengths;
}

/// The definition: examines every row for each piece, and takes the one with the least sufficient room that reached it
/// first.
Rows best_fit_by_definition(std::vector<DocumentSlice> pieces, std::int32_t row_length) {
  struct Row {
    std::int32_t room;
    std::size_t since;  // when it got that room
    std::vector<DocumentSlice> slices;
  };
  std::stable_sort(pieces.begin(), pieces.end(), [](const auto& a, const auto& b) { return a.size > b.size; });
  std::vector<Row> rows;
  for (std::size_t now = 0; now < pieces.size(); ++now) {
    Row* best = nullptr;
    for (Row& row : rows)
      if (row.room >= pieces[now].size &&
          (!best || row.room < best->room || (row.room == best->room && row.since < best->since)))
        best = &row;
    if (!best) best = &rows.emplace_back(Row{row_length, now, {}});
    best->slices.push_back(pieces[now]);
    best->room -= pieces[now].size;
    best->since = now;
  }
  Rows out;
  for (Row& row : rows) out.push_back(std::move(row.slices));
  return out;
}

TEST(PackingProperties, BestFitDecreasingIsWhatItsDefinitionSays) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::vector<std::int32_t> lengths = random_lengths(seed);
    const auto row_length = static_cast<std::int32_t>(1 + seed % 40);
    std::vector<DocumentSlice> cut;
    for (std::size_t d = 0; d < lengths.size(); ++d)
      if (lengths[d] > 0) cut.push_back({static_cast<std::int64_t>(d), 0, std::min(lengths[d], row_length)});
    EXPECT_EQ(rows_of(pack(Packing::bfd, lengths, row_length)), best_fit_by_definition(cut, row_length)) << seed;
  }
}

TEST(PackingProperties, EveryTokenIsInOneRowAndNoRowIsTooLong) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::vector<std::int32_t> lengths = random_lengths(seed);
    const auto row_length = static_cast<std::int32_t>(1 + seed % 40);
    for (const Packing packing : {Packing::bfd, Packing::bfd_split, Packing::wrapped}) {
      std::vector<std::vector<int>> seen;
      for (const std::int32_t n : lengths) seen.emplace_back(static_cast<std::size_t>(n), 0);
      const Rows rows = rows_of(pack(packing, lengths, row_length));
      for (const auto& row : rows) {
        std::int32_t size = 0;
        for (const DocumentSlice& slice : row) {
          EXPECT_GT(slice.size, 0);
          size += slice.size;
          for (std::int32_t t = slice.begin; t < slice.begin + slice.size; ++t)
            ++seen.at(static_cast<std::size_t>(slice.document)).at(static_cast<std::size_t>(t));
        }
        EXPECT_LE(size, row_length);
        EXPECT_TRUE(packing != Packing::wrapped || size == row_length || &row == &rows.back());
      }
      for (const auto& document : seen)
        for (std::size_t t = 0; t < document.size(); ++t) {
          const bool kept = packing != Packing::bfd || t < static_cast<std::size_t>(row_length);
          EXPECT_EQ(document[t], kept ? 1 : 0);
        }
    }
  }
}

TEST(Packing, AMillionDocumentsTakeNoTimeThatGrowsWithTheirSquare) {
  std::vector<std::int32_t> lengths(1'000'000);
  for (std::size_t i = 0; i < lengths.size(); ++i)
    lengths[i] = 1 + static_cast<std::int32_t>(philox(1, 2, i)[0] % 2048);
  const auto begin = std::chrono::steady_clock::now();
  const PackedRows rows = pack(Packing::bfd, lengths, 2048);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(rows.slices.size(), lengths.size());
  EXPECT_LT(seconds.count(), 30) << "about 0.2 s alone on a processor; quadratic work would take an hour";
}

TEST(Packing, NeedsALength) {
  test::error_of(ErrorKind::usage, [] { pack(Packing::bfd, {}, 0); });
}

}  // namespace
}  // namespace qtrain
