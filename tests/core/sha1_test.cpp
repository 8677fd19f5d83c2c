#include "core/sha1.h"

#include <gtest/gtest.h>

namespace qtrain {
namespace {

// Examples of FIPS 180-4, and what `git hash-object` says of a file with "hello\n".
TEST(Sha1, GivesTheDigestsOfTheStandard) {
  Sha1 empty, abc, blob;
  EXPECT_EQ(empty.hex(), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
  abc.add("a");
  abc.add("bc");
  EXPECT_EQ(abc.hex(), "a9993e364706816aba3e25717850c26c9cd0d89d");
  blob.add(std::string_view("blob 6\0hello\n", 13));
  EXPECT_EQ(blob.hex(), "ce013625030ba8dba906f756967f9e9ca394464a");
}

}  // namespace
}  // namespace qtrain
