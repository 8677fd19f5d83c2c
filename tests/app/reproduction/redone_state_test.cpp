#include "app/reproduction/redone_state.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace qtrain {
namespace {

TEST(FirstDifference, NamesItsPlaceAndBothValues) {
  struct Case {
    const char *sealed, *again, *says;
  };
  const std::vector<Case> cases{
      {R"({"a": 1})", R"({"a": 1})", ""},
      {R"({"a": {"b": [1, 2]}})", R"({"a": {"b": [1, 3]}})",
       "a.b[1]: 2 was sealed, and 3 comes of doing the steps again"},
      {R"({"a": 1})", R"({})", "a: 1 was sealed, and null comes of doing the steps again"},
      {R"({})", R"({"a": 1})", "a: null was sealed, and 1 comes of doing the steps again"},
      {R"({"a": [1]})", R"({"a": [1, 2]})", "a[1]: null was sealed, and 2 comes of doing the steps again"},
      {R"({"a": 4.0})", R"({"a": 4})", "a: 4.0 was sealed, and 4 comes of doing the steps again"},
      {R"({"a": [0, {"b": -0.0}]})", R"({"a": [0, {"b": 0.0}]})",
       "a[1].b: -0.0 was sealed, and 0.0 comes of doing the steps again"},
      {R"({"a": 9007199254740993})", R"({"a": 9007199254740992.0})",
       "a: 9007199254740993 was sealed, and 9007199254740992.0 comes of doing the steps again"},
      {R"({"a": "1"})", R"({"a": 1})", "a: \"1\" was sealed, and 1 comes of doing the steps again"},
  };
  for (const Case& c : cases) EXPECT_EQ(first_difference(Json::parse(c.sealed), Json::parse(c.again)), c.says);
}

}  // namespace
}  // namespace qtrain
