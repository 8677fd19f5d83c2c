#include "core/plural.h"

#include <gtest/gtest.h>

namespace qtrain {
namespace {

TEST(Counted, OneIsNotSeveral) {
  EXPECT_EQ(counted(0, "row"), "0 rows");
  EXPECT_EQ(counted(1, "row"), "1 row");
  EXPECT_EQ(counted(2, "row"), "2 rows");
  EXPECT_EQ(counted(1, "matrix", "matrices"), "1 matrix");
  EXPECT_EQ(counted(2, "matrix", "matrices"), "2 matrices");
}

}  // namespace
}  // namespace qtrain
