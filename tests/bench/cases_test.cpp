// The benchmark cases: each runs, makes the same call on every instruction set, and has a unique name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "bench/cases/measure.h"
#include "core/error.h"
#include "tests/errors.h"

namespace qtrain::bench {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> names_of(const std::vector<Case>& cases) {
  std::vector<std::string> names;
  for (const Case& c : cases) names.push_back(c.name);
  return names;
}

Sizes typed(Sizes s, DType dtype) {
  s.dtype = dtype;
  return s;
}

TEST(BenchCases, EverySmallOneRunsInBothTypes) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Case& c : all_cases(typed(small_sizes({}), dtype))) {
      SCOPED_TRACE(c.name);
      int runs = 0;
      EXPECT_NO_THROW(run_once(ctx, c, [&](const std::function<void()>& run) {
        run();
        ++runs;
      }));
      EXPECT_EQ(runs, 1);
    }
}

TEST(BenchCases, NoTwoHaveOneName) {
  for (const Sizes& s : {sizes_for({}), small_sizes({}), counted_sizes(), sizes_for({DeviceKind::cuda, 0}),
                         small_sizes({DeviceKind::cuda, 0})}) {
    const std::vector<std::string> names = names_of(all_cases(s));
    EXPECT_THAT(names, ::testing::SizeIs(std::set<std::string>(names.begin(), names.end()).size()));
    EXPECT_GT(names.size(), 40u);
  }
}

TEST(BenchCases, AGpuHasNoneOfTheHostsWork) {
  const std::vector<std::string> host = names_of(all_cases(small_sizes({})));
  const std::vector<std::string> gpu = names_of(all_cases(small_sizes({DeviceKind::cuda, 0})));
  EXPECT_THAT(host, ::testing::Contains("tokenize/20"));
  EXPECT_THAT(gpu, ::testing::Not(::testing::Contains("tokenize/20")));
}

TEST(BenchCases, ADestinationThatIsAddedToKeepsWhatItHas) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  std::vector<float> x{1, 2}, y{10, 20};
  const auto call = [&](bool adds) {
    const Argument arguments[] = {{view_of(std::span(y), {2}), adds}, {view_of(std::span(x), {2})}};
    call_op(ctx, {.op = "copy", .tensors = arguments});
  };
  call(true);
  EXPECT_THAT(y, ::testing::ElementsAre(11, 22));
  call(false);
  EXPECT_THAT(y, ::testing::ElementsAre(1, 2));
}

TEST(BenchCases, UnknownOpsAndMissingArgumentsAreNamed) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  const auto message = [&](const OpCall& call) {
    return std::string(test::error_of([&] { call_op(ctx, call); }).what());
  };
  EXPECT_THAT(message({.op = "copie", .tensors = {}}), HasSubstr("unknown op copie"));
  EXPECT_THAT(message({.op = "copy", .tensors = {}}), HasSubstr("the op takes more tensors"));
}

}  // namespace
}  // namespace qtrain::bench
