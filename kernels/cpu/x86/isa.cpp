#include "kernels/cpu/isa.h"

#include <cpuid.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <set>
#include <sstream>

#include "core/error.h"
#include "kernels/cpu/gemm_blocked.h"
#include "kernels/cpu/x86/expand4_avx512.h"
#include "kernels/cpu/x86/expand8_avx512.h"

namespace qtrain {
namespace {

struct Registers {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

// Queries the CPU directly, because __builtin_cpu_supports is not initialized in some compilers' runtimes.
Registers cpuid(unsigned leaf, unsigned part) {
  Registers r;
  if (__get_cpuid_count(leaf, part, &r.a, &r.b, &r.c, &r.d) == 0) return {};
  return r;
}

bool all_set(std::uint64_t bits, std::initializer_list<int> wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&](int bit) { return (bits >> bit & 1U) != 0; });
}

// The registers that the operating system saves for each thread (XCR0).
std::uint64_t kept_registers() {
  constexpr int kOsxsave = 27;
  if (!all_set(cpuid(1, 0).c, {kOsxsave})) return 0;
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return std::uint64_t{high} << 32 | low;
}

CpuIsa detected() {
  constexpr int kFma = 12, kAvx = 28;                                  // leaf 1, ecx
  constexpr int kAvx2 = 5, kF = 16, kDq = 17, kBw = 30, kVl = 31;      // leaf 7, ebx
  constexpr int kXmm = 1, kYmm = 2, kMasks = 5, kZmm = 6, kZmm16 = 7;  // saved registers
  constexpr int kBf16 = 5;                                             // leaf 7 subleaf 1, eax
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

// The value of a key in /proc/cpuinfo, or an empty string.
std::string cpu_info(std::string_view key) {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with(key)) {
      const std::size_t colon = line.find(':');
      if (colon != std::string::npos && colon + 2 < line.size()) return line.substr(colon + 2);
    }
  return {};
}

}  // namespace

FoundIsa find_isa() {
  const CpuIsa best = detected();
  return {best, best == CpuIsa::avx512_bf16 && !made_by_amd() ? CpuIsa::avx512 : best};
}

std::string processor_name() {
  const std::string name = cpu_info("model name");
  return name.empty() ? "x86-64 processor" : name;
}

std::vector<VectorUnit> vector_units() {
  std::istringstream words(cpu_info("flags"));
  const std::set<std::string> flags{std::istream_iterator<std::string>(words), {}};
  const bool avx2 = flags.contains("avx2") && flags.contains("fma"), avx512 = flags.contains("avx512f");
  const bool bf16 = flags.contains("avx512_bf16") || flags.contains("amx_bf16");
  return {{"AVX2 + FMA", avx2, "training is about 8 times slower without them"},
          {"AVX-512", avx512, "GEMMs take up to twice as long as with it"},
          {"bfloat16 dot products", bf16,
           "bf16 computes in float32 here; with AVX512-BF16 or AMX training is 2 to 3 times faster"}};
}

namespace ops {

const TileKernel& tile_kernel(MatmulPrecision precision) {
  const CpuIsa isa = cpu_isa();
  if (isa == CpuIsa::avx2) return kTileF32;
  return precision == MatmulPrecision::bf16 && isa == CpuIsa::avx512_bf16 ? kTileAvx512Bf16 : kTileAvx512;
}

const ExpandBlocks4* whole_blocks4(DType y) {
  if (cpu_isa() == CpuIsa::avx2) return nullptr;
  return y == DType::f32 ? kExpandF32Avx512 : y == DType::bf16 ? kExpandBf16Avx512 : kExpandF16Avx512;
}

ExpandRow8 whole_row8(DType y) {
  if (cpu_isa() == CpuIsa::avx2 || y == DType::f16) return nullptr;
  return y == DType::f32 ? kExpandRow8F32Avx512 : kExpandRow8Bf16Avx512;
}

}  // namespace ops
}  // namespace qtrain
