#include "data/packing.h"

#include <gtest/gtest.h>

#include "core/json.h"
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
    EXPECT_EQ(rows_of(pack(packing_named(strategy), lengths, golden["row_length"])), expected)
        << strategy << " of " << lengths.size() << " documents";
  }
}

TEST(Packing, WithoutPackingEachDocumentIsARowCutToItsLength) {
  const std::vector<std::int32_t> lengths = {3, 9, 0};
  EXPECT_EQ(rows_of(pack(Packing::none, lengths, 4)), (Rows{{{0, 0, 3}}, {{1, 0, 4}}, {{2, 0, 0}}}));
}

TEST(Packing, UnknownStrategiesAreRefused) {
  EXPECT_EQ(packing_named("bfd-requeue"), Packing::bfd_split);
  test::error_of(ErrorKind::usage, [] { packing_named("ffd"); });
  test::error_of(ErrorKind::usage, [] { pack(Packing::bfd, {}, 0); });
}

}  // namespace
}  // namespace qtrain
