#include "core/sha256.h"

#include <gtest/gtest.h>

#include "core/os/file.h"
#include "tests/core/temp_folder.h"

namespace qtrain {
namespace {

// The examples of FIPS 180-4, and lengths around a block according to Python's hashlib.
TEST(Sha256, GivesThePublishedValues) {
  EXPECT_EQ(sha256_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_of(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, DoesNotDependOnHowContentsAreCut) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i * 7);
  for (std::size_t size : {0u, 1u, 55u, 56u, 63u, 64u, 65u, 119u, 128u, 300u}) {
    const std::string whole = text.substr(0, size);
    for (std::size_t chunk : {1u, 5u, 64u, 70u}) {
      Sha256 hash;
      for (std::size_t at = 0; at < size; at += chunk) hash.add(std::string_view(whole).substr(at, chunk));
      EXPECT_EQ(hash.hex(), sha256_of(whole)) << size << " in chunks of " << chunk;
    }
  }
}

TEST(Sha256, OfAFile) {
  const testing::TempFolder folder;
  write_file(folder / "a", "abc");
  EXPECT_EQ(sha256_of_file(folder / "a"), sha256_of("abc"));
  EXPECT_EQ(testing::error_of([&] { sha256_of_file(folder / "b"); }).kind(), ErrorKind::input);
}

}  // namespace
}  // namespace qtrain
