#include "dist/store_request.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace qtrain {
namespace {

/// Reads from a connection that ends after these bytes.
ReadBytes reading(std::string& bytes) {
  return [&bytes](std::span<std::byte> into) {
    if (bytes.size() < into.size()) return false;
    std::memcpy(into.data(), bytes.data(), into.size());
    bytes.erase(0, into.size());
    return true;
  };
}

std::string head(std::initializer_list<std::uint32_t> numbers) {
  std::string bytes(numbers.size() * sizeof(std::uint32_t), '\0');
  std::memcpy(bytes.data(), numbers.begin(), bytes.size());
  return bytes;
}

TEST(StoreRequests, SurviveTheWay) {
  const std::string value("\0\n binary", 9), large(kMaxStoreValue, 'x');
  for (const std::string& v : {value, large, std::string()}) {
    const StoreRequest sent{.verb = StoreRequest::Verb::set, .key = std::string(kMaxStoreKey, 'k'), .value = v};
    std::string bytes = sent.bytes();
    const auto got = StoreRequest::from(reading(bytes));
    ASSERT_TRUE(got);
    EXPECT_EQ(got->key, sent.key);
    EXPECT_EQ(got->value, v);
    std::string answer = StoreAnswer{.value = v}.bytes();
    EXPECT_EQ(StoreAnswer::from(reading(answer))->value, v);
  }
  std::string nothing = StoreAnswer{}.bytes();
  EXPECT_EQ(StoreAnswer::from(reading(nothing))->value, std::nullopt);
}

TEST(StoreRequests, AreRefusedOutsideTheirBounds) {
  constexpr std::uint32_t kMuch = 0xffffffff;
  const auto key = static_cast<std::uint32_t>(kMaxStoreKey), value = static_cast<std::uint32_t>(kMaxStoreValue);
  for (std::string bytes :
       {head({1, 0, key + 1, 0}), head({1, 0, 1, value + 1}), head({1, 0, kMuch, kMuch}), head({0, 0, 1, 1}),
        head({3, 0, 1, 1}), head({kMuch, kMuch, 1, 1}), head({1, 0, 1}), std::string("GET / HTTP/1.1\r\n\r\n")}) {
    bytes += std::string(bytes.size() < 16 ? 0 : 4096, 'x');
    EXPECT_FALSE(StoreRequest::from(reading(bytes)));
  }
  for (std::string bytes : {head({1, value + 1}), head({2, 0}), head({0, 1}) + "x", head({1, 5}) + "four"})
    EXPECT_FALSE(StoreAnswer::from(reading(bytes)));
}

// The sender announces much more than it sends.
TEST(StoreRequests, TakeMemoryForWhatHasCome) {
  std::string bytes = head({1, 0, 0, static_cast<std::uint32_t>(kMaxStoreValue)}) + "a few";
  std::size_t largest = 0;
  const ReadBytes read = [&, inner = reading(bytes)](std::span<std::byte> into) {
    largest = std::max(largest, into.size());
    return inner(into);
  };
  EXPECT_FALSE(StoreRequest::from(read));
  EXPECT_LE(largest, std::size_t{1} << 16);
}

}  // namespace
}  // namespace qtrain
