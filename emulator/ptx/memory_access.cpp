#include <string>

#include "emulator/memory.h"
#include "emulator/ptx/executions.h"
#include "emulator/ptx/machine.h"

/// Loads, stores, atomic operations and asynchronous copies.
namespace qtrain::emulation::ptx {
namespace {

enum class Space : std::uint8_t { global, shared, local, param };

/// The instruction's address; faults unless it is aligned to the size of the whole access.
template <Space S>
std::byte* address_of(Machine& m, const Instruction& i, std::size_t bytes) {
  std::uint64_t at = static_cast<std::uint64_t>(i.offset);
  if constexpr (S == Space::param) {
    if (i.operand_count > 0) at += m.operand<std::uint64_t>(i, 0);
    return m.parameter(at, bytes, i);
  }
  at += S == Space::shared ? m.operand<std::uint32_t>(i, 0) : m.operand<std::uint64_t>(i, 0);
  if (at % bytes != 0)
    m.fault("misaligned: accesses " + std::to_string(bytes) + " bytes at an address that is not a multiple of that", i);
  if constexpr (S == Space::local) return m.local(at, bytes, i);
  return S == Space::shared ? m.shared(static_cast<std::uint32_t>(at)) : static_cast<std::byte*>(at_address(at));
}
template <Space S>
constexpr bool kWatched = S == Space::global || S == Space::shared;

// Narrow integers are extended to the register width. A compiler may load more than it needs, such as the unused end of
// an array; registers then have no value.
template <Space S, class T>
void load(Machine& m, const Instruction& i) {
  const std::byte* p = address_of<S>(m, i, sizeof(T) * i.result_count);
  const bool whole = !kWatched<S> || !lacks_value(p, sizeof(T) * i.result_count);
  if (kWatched<S> && whole) watch(p, sizeof(T) * i.result_count, AccessKind::read, i.place);
  for (std::size_t n = 0; n < i.result_count; ++n, p += sizeof(T)) {
    if (!whole) {
      m.set_has_value(i.results[n], !lacks_value(p, sizeof(T)));
      if (!m.has_value(i.results[n])) continue;
      watch(p, sizeof(T), AccessKind::read, i.place);
    }
    T value;
    std::memcpy(&value, p, sizeof value);
    if constexpr (std::is_integral_v<T> && std::is_signed_v<T>)
      m.set(i.results[n], static_cast<std::int64_t>(value));
    else
      m.set(i.results[n], value);
  }
}
template <Space S, class T>
void store(Machine& m, const Instruction& i) {
  const std::size_t count = i.operand_count - 1u;
  std::byte* p = address_of<S>(m, i, sizeof(T) * count);
  if (kWatched<S>) watch(p, sizeof(T) * count, AccessKind::write, i.place);
  for (std::size_t n = 0; n < count; ++n) {
    const T value = m.operand<T>(i, n + 1);
    std::memcpy(p + n * sizeof value, &value, sizeof value);
  }
}

template <Space S, class T, AtomicOp Op>
void update(Machine& m, const Instruction& i) {
  auto* p = reinterpret_cast<T*>(address_of<S>(m, i, sizeof(T)));
  m.set(i.results[0], atomic(p, Op, m.operand<T>(i, 1), i.place));
}
template <Space S, class T>
void compare_and_swap(Machine& m, const Instruction& i) {
  auto* p = reinterpret_cast<T*>(address_of<S>(m, i, sizeof(T)));
  m.set(i.results[0], emulation::compare_and_swap(p, m.operand<T>(i, 1), m.operand<T>(i, 2), i.place));
}

void load_acquired(Machine& m, const Instruction& i) {
  const auto* p = reinterpret_cast<const int*>(address_of<Space::global>(m, i, sizeof(int)));
  m.set(i.results[0], static_cast<std::int64_t>(load_acquire(p, i.place)));
}
void store_released(Machine& m, const Instruction& i) {
  auto* p = reinterpret_cast<int*>(address_of<Space::global>(m, i, sizeof(int)));
  store_release(p, m.operand<int>(i, 1), i.place);
}

template <bool Zeros>
void copy_to_shared(Machine& m, const Instruction& i) {
  const auto bytes = m.operand<std::uint32_t>(i, 2);
  const auto taken = Zeros ? m.operand<std::uint32_t>(i, 3) : bytes;
  copy_async({.to = m.shared(m.operand<std::uint32_t>(i, 0)),
              .from = at_address(m.operand<std::uint64_t>(i, 1)),
              .bytes = bytes,
              .taken = taken},
             i.place);
}
void copy(Machine& m, const Instruction& i) {
  (i.operand_count == 4 ? copy_to_shared<true> : copy_to_shared<false>)(m, i);
}

// Shared addresses are offsets in the block's shared memory; generic addresses are host addresses.
void shared_to_generic(Machine& m, const Instruction& i) {
  m.set(i.results[0], reinterpret_cast<std::uint64_t>(m.shared(m.operand<std::uint32_t>(i, 0))));
}
void generic_to_shared(Machine& m, const Instruction& i) {
  m.set(i.results[0], m.operand<std::uint64_t>(i, 0) - reinterpret_cast<std::uint64_t>(m.shared(0)));
}

template <Space S, class T>
void add_accesses(Executions& all, const std::string& space, const char* type) {
  for (const char* vector : {"", ".v2", ".v4"}) {
    all["ld." + space + vector + type] = load<S, T>;
    all["st." + space + vector + type] = store<S, T>;
  }
}
template <Space S>
void add_accesses(Executions& all, const std::string& space) {
  add_accesses<S, std::int8_t>(all, space, ".s8");
  add_accesses<S, std::int16_t>(all, space, ".s16");
  add_accesses<S, std::int32_t>(all, space, ".s32");
  add_accesses<S, float>(all, space, ".f32");
  add_accesses<S, double>(all, space, ".f64");
  add_accesses<S, std::uint64_t>(all, space, ".s64");
  for (const char letter : {'u', 'b'}) {
    const std::string kind = std::string(".") + letter;
    add_accesses<S, std::uint8_t>(all, space, (kind + "8").c_str());
    add_accesses<S, std::uint16_t>(all, space, (kind + "16").c_str());
    add_accesses<S, std::uint32_t>(all, space, (kind + "32").c_str());
    add_accesses<S, std::uint64_t>(all, space, (kind + "64").c_str());
  }
}
template <Space S>
void add_atomics(Executions& all, const std::string& space) {
  const std::string atom = "atom." + space;
  all[atom + ".add.u32"] = update<S, unsigned, AtomicOp::add>;
  all[atom + ".add.u64"] = update<S, unsigned long long, AtomicOp::add>;
  all[atom + ".add.f32"] = update<S, float, AtomicOp::add>;
  all[atom + ".add.f64"] = update<S, double, AtomicOp::add>;
  all[atom + ".max.s32"] = update<S, int, AtomicOp::max>;
  all[atom + ".max.u32"] = update<S, unsigned, AtomicOp::max>;
  all[atom + ".min.s32"] = update<S, int, AtomicOp::min>;
  all[atom + ".min.u32"] = update<S, unsigned, AtomicOp::min>;
  all[atom + ".exch.b32"] = update<S, unsigned, AtomicOp::exchange>;
  all[atom + ".or.b32"] = update<S, unsigned, AtomicOp::bit_or>;
  all[atom + ".and.b32"] = update<S, unsigned, AtomicOp::bit_and>;
  all[atom + ".cas.b32"] = compare_and_swap<S, unsigned>;
  all[atom + ".cas.b64"] = compare_and_swap<S, unsigned long long>;
}

Executions made() {
  Executions all{
      {"cp.async.cg.shared.global", copy},
      {"cp.async.ca.shared.global", copy},
      {"cp.async.commit_group", [](Machine&, const Instruction&) { commit_copies(); }},
      {"cp.async.wait_group", [](Machine& m, const Instruction& i) { wait_copies(m.operand<int>(i, 0)); }},
      {"ld.acquire.gpu.global.s32", load_acquired},
      {"st.release.gpu.global.s32", store_released},
      {"cvta.shared.u64", shared_to_generic},
      {"cvta.to.shared.u64", generic_to_shared},
  };
  add_accesses<Space::global>(all, "global");
  add_accesses<Space::global>(all, "global.nc");
  add_accesses<Space::shared>(all, "shared");
  add_accesses<Space::local>(all, "local");
  add_accesses<Space::param>(all, "param");
  add_atomics<Space::global>(all, "global");
  add_atomics<Space::shared>(all, "shared");
  return all;
}

}  // namespace

const Executions& memory_access() {
  static const Executions all = made();
  return all;
}

}  // namespace qtrain::emulation::ptx
