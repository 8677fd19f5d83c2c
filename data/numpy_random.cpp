#include "data/numpy_random.h"

#include <bit>
#include <numeric>
#include <utility>

namespace qtrain {
namespace {

constexpr std::uint64_t kMultiplierHigh = 0x2360ED051FC65DA4u, kMultiplierLow = 0x4385DF649FCCF645u;

/// The hash function of numpy's SeedSequence; its constant changes with every use.
struct SeedHash {
  std::uint32_t constant, multiplier;
  std::uint32_t operator()(std::uint32_t value) {
    value ^= constant;
    constant *= multiplier;
    value *= constant;
    return value ^ value >> 16;
  }
};

/// SeedSequence(seed).generate_state(4, uint64)
std::array<std::uint64_t, 4> seed_state(std::uint64_t seed) {
  const std::uint32_t words[4] = {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32), 0, 0};
  std::array<std::uint32_t, 4> pool{};
  SeedHash in{0x43b0d7e5u, 0x931e8875u}, out{0x8b51f9ddu, 0x58f38dedu};
  for (std::size_t i = 0; i < 4; ++i) pool[i] = in(words[i]);
  for (std::size_t from = 0; from < 4; ++from)
    for (std::size_t to = 0; to < 4; ++to) {
      if (from == to) continue;
      const std::uint32_t mixed = 0xca01f9ddu * pool[to] - 0x4973f715u * in(pool[from]);
      pool[to] = mixed ^ mixed >> 16;
    }
  std::array<std::uint64_t, 4> state{};
  for (std::size_t i = 0; i < 8; ++i) state[i / 2] |= static_cast<std::uint64_t>(out(pool[i % 4])) << (i % 2 * 32);
  return state;
}

}  // namespace

NumpyRandom::NumpyRandom(std::uint64_t seed) {
  const auto words = seed_state(seed);
  increment_ = ((static_cast<Word>(words[2]) << 64 | words[3]) << 1) | 1;
  step();
  state_ += static_cast<Word>(words[0]) << 64 | words[1];
  step();
}

void NumpyRandom::step() {
  state_ = state_ * (static_cast<Word>(kMultiplierHigh) << 64 | kMultiplierLow) + increment_;
}

std::uint64_t NumpyRandom::bits() {
  step();
  const auto high = static_cast<std::uint64_t>(state_ >> 64), low = static_cast<std::uint64_t>(state_);
  return std::rotr(high ^ low, static_cast<int>(high >> 58));
}

double NumpyRandom::next() {
  return static_cast<double>(bits() >> 11) * 0x1p-53;
}

std::uint32_t NumpyRandom::half_of_bits() {
  if (other_half_) return *std::exchange(other_half_, std::nullopt);
  const std::uint64_t both = bits();
  other_half_ = static_cast<std::uint32_t>(both >> 32);
  return static_cast<std::uint32_t>(both);
}

std::uint32_t NumpyRandom::up_to(std::uint32_t most) {
  const std::uint32_t mask = ~std::uint32_t{0} >> std::countl_zero(most);
  std::uint32_t value = half_of_bits() & mask;
  while (value > most) value = half_of_bits() & mask;
  return value;
}

std::vector<std::int64_t> NumpyRandom::permutation(std::int64_t n) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i-- > 1;) std::swap(order[i], order[up_to(static_cast<std::uint32_t>(i))]);
  return order;
}

}  // namespace qtrain
