#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace qtrain {

/// Bit-compatible with random() and permutation(n) of numpy.random.default_rng(seed): PCG64 seeded by a SeedSequence.
class NumpyRandom {
 public:
  explicit NumpyRandom(std::uint64_t seed);
  /// In [0, 1).
  double next();
  /// The numbers from 0 to n - 1 in random order; n is at most 2^32.
  std::vector<std::int64_t> permutation(std::int64_t n);

 private:
  __extension__ using Word = unsigned __int128;
  void step();
  std::uint64_t bits();
  std::uint32_t half_of_bits();
  std::uint32_t up_to(std::uint32_t most);

  Word state_ = 0, increment_ = 0;
  std::optional<std::uint32_t> other_half_ = {};  ///< of the last bits of which half was used
};

}  // namespace qtrain
