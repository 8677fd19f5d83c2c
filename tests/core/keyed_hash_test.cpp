#include "core/keyed_hash.h"

#include <gtest/gtest.h>

#include <bit>
#include <set>

#include "core/formats/json.h"
#include "tests/core/colliding_keys.h"

namespace qtrain {
namespace {

using hostile::cpu_seconds;
using hostile::ordinary_texts;
using hostile::texts_of_one_hash;

TEST(CollidingKeys, CollideForTheStandardLibrary) {
  std::set<std::size_t> hashes;
  for (const std::string& text : texts_of_one_hash(20)) hashes.insert(std::hash<std::string_view>{}(text));
  EXPECT_EQ(hashes.size(), 1u);
}

TEST(KeyedHash, TellsThemApart) {
  const std::size_t count = 2000;
  std::set<std::size_t> hashes, buckets;
  for (const std::string& text : texts_of_one_hash(count)) {
    hashes.insert(KeyedHash{}(text));
    buckets.insert(KeyedHash{}(text) % 65536);
  }
  EXPECT_EQ(hashes.size(), count);
  EXPECT_GT(buckets.size(), count * 9 / 10);
  hashes.clear();
  for (const std::int64_t number : hostile::numbers_of_one_bucket(count)) hashes.insert(KeyedHash{}(number) % 65536);
  EXPECT_GT(hashes.size(), count * 9 / 10);
}

// Otherwise, whoever knows the program knows which keys collide.
TEST(KeyedHash, DependsOnItsKeyInEveryBit) {
  const HashKey key{.first = 0x1234567890abcdef, .second = 0xfedcba0987654321};
  for (const std::string text : {"", "a", "eight by", "more than eight", "more than sixteen bytes of text"}) {
    std::uint64_t changed = 0;
    int bits = 0;
    for (int bit = 1; bit < 64; ++bit)
      for (const HashKey& other : {HashKey{key.first ^ std::uint64_t{1} << bit, key.second},
                                   HashKey{key.first, key.second ^ std::uint64_t{1} << bit}}) {
        const std::uint64_t differs = keyed_hash(text, key) ^ keyed_hash(text, other);
        changed |= differs;
        bits += std::popcount(differs);
      }
    EXPECT_EQ(changed, ~std::uint64_t{0}) << text;
    EXPECT_NEAR(bits / 126.0, 32, 6) << text;
  }
}

TEST(KeyedHash, SeesEveryByteAndTheSize) {
  const std::string text = "twenty-one characters";
  std::set<std::uint64_t> hashes{keyed_hash(text, hash_key())};
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string other = text;
    other[i] ^= 1;
    hashes.insert(keyed_hash(other, hash_key()));
    hashes.insert(keyed_hash(std::string(i, '\0'), hash_key()));
  }
  EXPECT_EQ(hashes.size(), 2 * text.size() + 1);
}

// Before hashes had a key, an object of 900 KB took 80 times as long as one with ordinary keys.
TEST(Json, KeysThatCollideTakeNoLonger) {
  constexpr std::size_t kKeys = 8000;
  const auto seconds = [&](const std::vector<std::string>& keys) {
    std::string text = "{";
    for (const std::string& key : keys) text += (text.size() > 1 ? ",\"" : "\"") + key + "\":0";
    text += "}";
    return cpu_seconds([&] { EXPECT_EQ(parse_json(text, "x").size(), kKeys); });
  };
  EXPECT_LT(seconds(texts_of_one_hash(kKeys)), 5 * seconds(ordinary_texts(kKeys)));
}

}  // namespace
}  // namespace qtrain
