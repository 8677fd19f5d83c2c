// Random numbers and choices of rows with the values of numpy and datasets.
#include "data/numpy_random.h"

#include <gmock/gmock.h>

#include "core/os/file.h"
#include "data/source/mixture.h"
#include "tests/core/temp_folder.h"
#include "tests/errors.h"

namespace qtrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// numpy.random.default_rng(seed).permutation(n) of numpy 2.4.
TEST(NumpyRandom, PermutesLikeNumpy) {
  EXPECT_THAT(NumpyRandom(0).permutation(12), ElementsAre(9, 2, 7, 4, 5, 11, 0, 3, 6, 10, 8, 1));
  EXPECT_THAT(NumpyRandom(42).permutation(7), ElementsAre(3, 2, 6, 4, 1, 5, 0));
  EXPECT_THAT(NumpyRandom((std::uint64_t{1} << 40) + 3).permutation(20),
              ElementsAre(11, 16, 9, 7, 17, 2, 5, 19, 10, 6, 15, 4, 14, 13, 3, 18, 0, 8, 1, 12));
  std::uint64_t sum = 0, place = 0;
  for (const std::int64_t x : NumpyRandom(7).permutation(100'000))
    sum += static_cast<std::uint64_t>(x) * place++ % 1'000'003;
  EXPECT_EQ(sum, 49'960'112'135U);
  EXPECT_TRUE(NumpyRandom(1).permutation(0).empty());
}

RawRows numbered(const std::filesystem::path& file, int rows) {
  std::string lines;
  for (int i = 0; i < rows; ++i) lines += R"({"text": ")" + std::to_string(i) + "\"}\n";
  write_file(file, lines);
  return RawRows({file});
}

// Dataset.shuffle(seed=42).select(range(int(7 * 0.5))) of datasets.
TEST(ChosenShare, TakesTheRowsThatDatasetsWouldTake) {
  const testing::TempFolder folder;
  const RawRows rows = chosen_share({.files = {"a"}, .share = 0.5, .share_seed = 42}, numbered(folder / "a.jsonl", 7));
  std::vector<std::string> texts;
  for (std::int64_t i = 0; i < rows.size(); ++i) texts.push_back(rows.parse(i).at("text"));
  EXPECT_THAT(texts, ElementsAre("3", "2", "6"));
  EXPECT_EQ(chosen_share({.files = {"a"}}, numbered(folder / "a.jsonl", 7)).size(), 7);
}

TEST(ChosenShare, IsRefusedIfItIsNotOne) {
  const testing::TempFolder folder;
  EXPECT_THAT(test::error_of(ErrorKind::usage,
                             [&] { chosen_share({.files = {"a"}, .share = 0.1}, numbered(folder / "a.jsonl", 7)); }),
              HasSubstr("a share of 0.1 of 7 rows is no row"));
  const auto refusal = [](Json entry) {
    entry["path"] = "a.jsonl";
    return test::error_of(ErrorKind::usage, [&] { read_data_source(entry, {}); });
  };
  EXPECT_THAT(refusal({{"share", 0}}), HasSubstr("share is 0"));
  EXPECT_THAT(refusal({{"share", 1.5}}), HasSubstr("share is 1.5"));
  EXPECT_THAT(refusal({{"share_seed", 0.5}}), HasSubstr("share_seed is not a whole number"));
}

}  // namespace
}  // namespace qtrain
