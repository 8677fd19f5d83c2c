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
      {R"({"a": {"b": [1, 2]}})", R"({"a": {"b": [1, 3]}})", "a.b[1]: 2 was sealed, but repeating the steps gives 3"},
      {R"({"a": 1})", R"({})", "a: 1 was sealed, but repeating the steps gives null"},
      {R"({})", R"({"a": 1})", "a: null was sealed, but repeating the steps gives 1"},
      {R"({"a": [1]})", R"({"a": [1, 2]})", "a[1]: null was sealed, but repeating the steps gives 2"},
      {R"({"a": 4.0})", R"({"a": 4})", "a: 4.0 was sealed, but repeating the steps gives 4"},
      {R"({"a": [0, {"b": -0.0}]})", R"({"a": [0, {"b": 0.0}]})",
       "a[1].b: -0.0 was sealed, but repeating the steps gives 0.0"},
      {R"({"a": 9007199254740993})", R"({"a": 9007199254740992.0})",
       "a: 9007199254740993 was sealed, but repeating the steps gives 9007199254740992.0"},
      {R"({"a": "1"})", R"({"a": 1})", "a: \"1\" was sealed, but repeating the steps gives 1"},
  };
  for (const Case& c : cases) EXPECT_EQ(first_difference(Json::parse(c.sealed), Json::parse(c.again)), c.says);
}

}  // namespace
}  // namespace qtrain
