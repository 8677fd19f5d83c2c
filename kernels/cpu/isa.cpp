#include "kernels/cpu/isa.h"

#include <cpuid.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <string_view>

#include "core/error.h"

namespace qtrain {
namespace {

constexpr std::array<std::string_view, 3> kNames{"avx2", "avx512", "avx512_bf16"};

struct Registers {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

// The runtime of some compilers leaves __builtin_cpu_supports without an answer, so the processor itself is asked.
Registers cpuid(unsigned leaf, unsigned part) {
  Registers r;
  if (__get_cpuid_count(leaf, part, &r.a, &r.b, &r.c, &r.d) == 0) return {};
  return r;
}

bool all_set(std::uint64_t bits, std::initializer_list<int> wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&](int bit) { return (bits >> bit & 1U) != 0; });
}

// Which registers the operating system keeps for every thread (XCR0).
std::uint64_t kept_registers() {
  constexpr int kOsxsave = 27;
  if (!all_set(cpuid(1, 0).c, {kOsxsave})) return 0;
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return std::uint64_t{high} << 32 | low;
}

CpuIsa detected() {
  constexpr int kFma = 12, kAvx = 28;                                  // leaf 1, c
  constexpr int kAvx2 = 5, kF = 16, kDq = 17, kBw = 30, kVl = 31;      // leaf 7, b
  constexpr int kXmm = 1, kYmm = 2, kMasks = 5, kZmm = 6, kZmm16 = 7;  // kept registers
  constexpr int kBf16 = 5;                                             // leaf 7 part 1, a
  const unsigned basic = cpuid(1, 0).c, extended = cpuid(7, 0).b;
  const std::uint64_t kept = kept_registers();
  if (!all_set(basic, {kFma, kAvx}) || !all_set(extended, {kAvx2}) || !all_set(kept, {kXmm, kYmm}))
    fail(ErrorKind::usage, {.cause = "this processor has no AVX2 and FMA units, which the CPU kernels need",
                            .remedy = "run on an x86-64 processor made since 2013 (Haswell, Zen or later)"});
  if (!all_set(extended, {kF, kDq, kBw, kVl}) || !all_set(kept, {kMasks, kZmm, kZmm16})) return CpuIsa::avx2;
  return all_set(cpuid(7, 1).a, {kBf16}) ? CpuIsa::avx512_bf16 : CpuIsa::avx512;
}

bool made_by_amd() {
  return cpuid(0, 0).b == signature_AMD_ebx;
}

// Asked once: in a virtual machine each answer is one of its host, which takes tens of microseconds.
CpuIsa best_here() {
  static const CpuIsa best = detected();
  return best;
}

CpuIsa fastest() {
  static const bool amd = made_by_amd();
  const CpuIsa best = best_here();
  return best == CpuIsa::avx512_bf16 && !amd ? CpuIsa::avx512 : best;
}

std::string model_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) {
      const std::size_t colon = line.find(':');
      if (colon != std::string::npos && colon + 2 < line.size()) return line.substr(colon + 2);
    }
  return "x86-64 processor";
}

}  // namespace

CpuIsa cpu_isa() {
  const char* text = std::getenv("QTRAIN_CPU_ISA");
  if (!text || !*text) return fastest();
  const auto it = std::find(kNames.begin(), kNames.end(), std::string_view(text));
  if (it == kNames.end())
    fail(ErrorKind::usage, {.cause = "QTRAIN_CPU_ISA is '" + std::string(text) + "'",
                            .remedy = "use avx2, avx512 or avx512_bf16, or unset it"});
  return std::min(best_here(), static_cast<CpuIsa>(it - kNames.begin()));
}

bool has_bf16_matmul() {
  return cpu_isa() == CpuIsa::avx512_bf16;
}

std::string describe_cpu() {
  return model_name() + ", " + std::string(kNames[static_cast<std::size_t>(cpu_isa())]);
}

}  // namespace qtrain
