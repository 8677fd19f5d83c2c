#pragma once
#include <array>
#include <cstdint>

namespace qtrain {

/// Bit-compatible with numpy.random.default_rng(seed).random(): PCG64 seeded by a SeedSequence.
class NumpyRandom {
 public:
  explicit NumpyRandom(std::uint64_t seed);
  /// In [0, 1).
  double next();

 private:
  __extension__ using Word = unsigned __int128;
  void step();

  Word state_ = 0, increment_ = 0;
};

}  // namespace qtrain
