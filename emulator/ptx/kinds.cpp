#include "emulator/ptx/kinds.h"

#include <algorithm>
#include <array>
#include <string>

namespace qtrain::emulation::ptx {
namespace {

struct Beginning {
  std::string_view text;
  Kind kind;
  Memory memory = Memory::none;
};

// The first that fits counts.
constexpr std::array kBeginnings = std::to_array<Beginning>({
    {"ld.global.", Kind::global_load, Memory::global},
    {"st.global.", Kind::global_store, Memory::global},
    {"ld.acquire.gpu.global.", Kind::global_load, Memory::global},
    {"st.release.gpu.global.", Kind::global_store, Memory::global},
    {"ld.shared.", Kind::shared_load, Memory::shared},
    {"st.shared.", Kind::shared_store, Memory::shared},
    {"ld.local.", Kind::local},
    {"st.local.", Kind::local},
    {"ld.param.", Kind::move},
    {"atom.global.", Kind::atomic, Memory::global},
    {"atom.shared.", Kind::atomic, Memory::shared},
    {"cp.async.ca.", Kind::async_copy, Memory::global_to_shared},
    {"cp.async.cg.", Kind::async_copy, Memory::global_to_shared},
    {"cp.async.bulk.tensor.", Kind::async_copy, Memory::box},
    {"cp.async.", Kind::barrier},
    {"mbarrier.", Kind::barrier},
    {"setmaxnreg.", Kind::barrier},
    {"ldmatrix.", Kind::load_matrix, Memory::shared},
    {"mma.", Kind::mma},
    {"wgmma.mma_async.", Kind::mma},
    {"wgmma.", Kind::barrier},
    {"fence.", Kind::barrier},
    {"ex2.", Kind::special},
    {"lg2.", Kind::special},
    {"rcp.", Kind::special},
    {"sqrt.", Kind::special},
    {"rsqrt.", Kind::special},
    {"div.rn.", Kind::special},
    {"div.approx.", Kind::special},
    {"cvta.", Kind::move},
    {"cvt.", Kind::conversion},
    {"mov.", Kind::move},
    {"bra", Kind::branch},
    {"ret", Kind::branch},
    {"exit", Kind::branch},
    {"trap", Kind::branch},
    {"shfl.", Kind::shuffle},
    {"vote.", Kind::shuffle},
    {"bar.", Kind::barrier},
    {"nanosleep.", Kind::barrier},
    {"selp.", Kind::integer},
});

/// The bytes of a type at the end: 4 for "ld.global.v2.f32".
unsigned bytes_of_element(std::string_view mnemonic) {
  unsigned bits = 0, factor = 1;
  for (auto digit = mnemonic.rbegin(); digit != mnemonic.rend() && *digit >= '0' && *digit <= '9'; ++digit) {
    bits += factor * static_cast<unsigned>(*digit - '0');
    factor *= 10;
  }
  return bits / 8;
}
unsigned bytes_of_lane(Kind kind, std::string_view mnemonic) {
  if (kind == Kind::async_copy) return 0;
  if (kind == Kind::load_matrix) return 16;  // a row of a matrix
  const auto has = [&](std::string_view part) { return mnemonic.find(part) != mnemonic.npos; };
  return bytes_of_element(mnemonic) * (has(".v4.") ? 4 : has(".v2.") ? 2 : 1);
}

bool is_of_floats(std::string_view mnemonic) {
  constexpr std::string_view kTypes[] = {".f64", ".f32", ".f16", ".f16x2", ".bf16", ".bf16x2"};
  return std::ranges::any_of(kTypes, [&](std::string_view type) { return mnemonic.ends_with(type); });
}

}  // namespace

Traits traits_of(std::string_view mnemonic) {
  const auto* known =
      std::ranges::find_if(kBeginnings, [&](const Beginning& b) { return mnemonic.starts_with(b.text); });
  if (known == kBeginnings.end()) return {is_of_floats(mnemonic) ? Kind::float_arithmetic : Kind::integer};
  Traits traits{known->kind, known->memory};
  if (known->memory != Memory::none) traits.bytes = static_cast<std::uint8_t>(bytes_of_lane(known->kind, mnemonic));
  return traits;
}

std::string_view name_of(Kind kind) {
  constexpr std::array<std::string_view, kKinds> kNames{
      "global loads", "global stores", "shared loads", "shared stores", "local",   "atomics",
      "async copies", "ldmatrix",      "mma",          "float",         "special", "integer",
      "conversions",  "moves",         "branches",     "shuffles",      "barriers"};
  return kNames[static_cast<std::size_t>(kind)];
}

}  // namespace qtrain::emulation::ptx
