#include "core/hmac.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace qtrain {
namespace {

std::string hex(const Mac& mac) {
  std::string text;
  for (const std::byte b : mac) text += fmt::format("{:02x}", static_cast<unsigned>(b));
  return text;
}

// RFC 4231, test cases 1, 2 and 6.
TEST(Hmac, IsThatOfTheStandard) {
  EXPECT_EQ(hex(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(hmac_sha256(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Hmac, IsComparedAsAWhole) {
  const Mac a = hmac_sha256("key", "text");
  EXPECT_TRUE(same_mac(a, hmac_sha256("key", "text")));
  for (std::size_t i = 0; i < a.size(); ++i) {
    Mac b = a;
    b[i] ^= std::byte{0x80};
    EXPECT_FALSE(same_mac(a, b)) << i;
  }
}

TEST(Hmac, RandomnessDiffers) {
  std::array<std::byte, 64> a{}, b{};
  fill_with_randomness(a);
  fill_with_randomness(b);
  EXPECT_NE(a, b);
  EXPECT_LT(std::ranges::count(a, std::byte{0}), 16);
}

}  // namespace
}  // namespace qtrain
