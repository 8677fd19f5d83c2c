#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "kernels/cpu/isa.h"

namespace qtrain::testing {

inline constexpr auto& kIsas = kCpuIsas;

/// A test that runs once per instruction set, and is skipped if the CPU does not support it.
class IsaTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    ::setenv("QTRAIN_CPU_ISA", GetParam(), 1);
    if (std::string(kIsas[static_cast<std::size_t>(cpu_isa())]) != GetParam()) GTEST_SKIP() << "not on this processor";
  }
  void TearDown() override { ::unsetenv("QTRAIN_CPU_ISA"); }
};
/// Whether it multiplies bfloat16: only the last one does.
inline bool has_bf16(const std::string& isa) {
  return isa == kIsas.back();
}
inline std::string isa_name(const ::testing::TestParamInfo<const char*>& info) {
  return info.param;
}

}  // namespace qtrain::testing
