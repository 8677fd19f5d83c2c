#include "text/tokenizer/flat_tables.h"

#include <gtest/gtest.h>

#include "tests/core/colliding_keys.h"

namespace qtrain {
namespace {

using hostile::cpu_seconds;

constexpr std::size_t kKeys = 20'000, kSlots = 65'536, kRegion = kSlots / 256;

// A hash without a key: the one that these tables once had, so that anybody could choose keys for a small region.
std::uint64_t known_hash(std::uint64_t a, std::uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a ^ 0x9E3779B97F4A7C15u) * (b ^ 0xD6E8FEB86659FD93u);
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

std::vector<std::string> texts_of_one_region() {
  std::vector<std::string> texts;
  for (std::uint64_t number = 0; texts.size() < kKeys; ++number) {
    std::string text(7, 'a');
    std::uint64_t left = number, word = 0;
    for (char& c : text) {
      c = static_cast<char>('a' + left % 26);
      left /= 26;
    }
    std::memcpy(&word, text.data(), text.size());
    if ((known_hash(word, text.size() * 0x9E3779B97F4A7C15u) & (kSlots - 1)) < kRegion) texts.push_back(text);
  }
  return texts;
}

TEST(StringIds, KeysThatWereChosenToCollideTakeNoLonger) {
  const auto seconds = [](const std::vector<std::string>& keys) {
    return cpu_seconds([&] {
      StringIds ids(keys.size());
      for (std::size_t i = 0; i < keys.size(); ++i) ids.insert(keys[i], static_cast<std::int32_t>(i));
      EXPECT_EQ(ids.find(keys[7]), 7);
    });
  };
  EXPECT_LT(seconds(texts_of_one_region()), 5 * seconds(hostile::ordinary_texts(kKeys)));
}

TEST(PairTable, PairsThatWereChosenToCollideTakeNoLonger) {
  using Pairs = std::vector<std::pair<std::int32_t, std::int32_t>>;
  Pairs chosen, ordinary;
  for (std::uint64_t key = 0; chosen.size() < kKeys; ++key) {
    const std::uint64_t left = key / 50'000, right = key % 50'000;
    const std::pair pair(static_cast<std::int32_t>(left), static_cast<std::int32_t>(right));
    if (ordinary.size() < kKeys) ordinary.push_back(pair);
    if ((known_hash(left << 32 | right, 0) & (kSlots - 1)) < kRegion) chosen.push_back(pair);
  }
  const auto seconds = [](const Pairs& pairs) {
    return cpu_seconds([&] {
      PairTable table(pairs.size());
      for (const auto& [left, right] : pairs) table(left, right) = {left, right};
      EXPECT_EQ(table.find(pairs[7].first, pairs[7].second)->second, pairs[7].second);
    });
  };
  EXPECT_LT(seconds(chosen), 5 * seconds(ordinary));
}

}  // namespace
}  // namespace qtrain
