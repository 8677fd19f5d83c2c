#pragma once
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <string>

#include "kernels/cpu/isa.h"

namespace qtrain::testing {

inline constexpr std::array kIsas{"avx2", "avx512", "avx512_bf16"};

/// A test that runs once for each instruction set, and is skipped where the processor does not have it.
class IsaTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    ::setenv("QTRAIN_CPU_ISA", GetParam(), 1);
    if (std::string(kIsas[static_cast<std::size_t>(cpu_isa())]) != GetParam()) GTEST_SKIP() << "not on this processor";
  }
  void TearDown() override { ::unsetenv("QTRAIN_CPU_ISA"); }
};
inline std::string isa_name(const ::testing::TestParamInfo<const char*>& info) {
  return info.param;
}

}  // namespace qtrain::testing
