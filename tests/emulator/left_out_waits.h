#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>

#include "emulator/driver.h"

/// Runs programs with two streams, skipping each wait between them in turn.
namespace qtrain::testing {

/// The number of waits in a program.
inline std::uint64_t waits_of(const std::function<void()>& program) {
  const std::uint64_t before = emulation::Driver::instance().waits().asked_for;
  program();
  return emulation::Driver::instance().waits().asked_for - before;
}

/// The error of a program with one of its waits skipped, numbered from 1; "none" without an error.
inline std::string complaint_without(std::uint64_t wait, const std::function<void()>& program) {
  emulation::Waits& waits = emulation::Driver::instance().waits();
  waits.left_out = waits.asked_for + wait;
  std::string complaint = "none";
  try {
    program();
    if (const auto kept = std::exchange(emulation::Driver::instance().kept_error(), nullptr))
      std::rethrow_exception(kept);
  } catch (const Error& e) {
    complaint = e.what();
  }
  waits.left_out = 0;
  emulation::Driver::instance().kept_error() = nullptr;
  return complaint;
}

inline void expect_to_need_each_wait(std::uint64_t count, const std::function<void()>& program) {
  ASSERT_EQ(waits_of(program), count);
  if (!emulation::kStates) GTEST_SKIP() << "a sanitizer's build does not see what kernels touch";
  for (std::uint64_t wait = 1; wait <= count; ++wait)
    EXPECT_THAT(complaint_without(wait, program), ::testing::HasSubstr("race of streams")) << "without wait " << wait;
}

}  // namespace qtrain::testing
