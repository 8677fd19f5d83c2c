#include "core/keyed_hash.h"

#include <random>

namespace qtrain {
namespace {

std::uint64_t random_bits(std::random_device& device) {
  return std::uint64_t{device()} << 32 | device();
}

}  // namespace

// The numbers are odd, so that a product with one of them loses no bits.
const HashKey& hash_key() {
  static const HashKey key = [] {
    std::random_device device;
    return HashKey{.first = random_bits(device) | 1, .second = random_bits(device) | 1};
  }();
  return key;
}

}  // namespace qtrain
