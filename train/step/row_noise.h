#pragma once
#include <cstdint>
#include <vector>

#include "data/loader.h"

namespace qtrain {

/// Whether training adds noise to embeddings (NEFTune).
enum class Noise : std::uint8_t { none, on_rows };

/// The noise of a micro-batch: uniform in +-alpha / sqrt(T C) for a row of T tokens. It is a function of the seed, the
/// row's place in its epoch, and the place in the row, so it does not depend on how rows are divided into batches.
struct RowNoise {
  double alpha = 0;
  std::int64_t width = 1;                           ///< C, of the embeddings
  std::int64_t seed = 0, epoch = 0, first_row = 0;  ///< first_row: place of the micro-batch's first row in its epoch
};

/// What ops::AddNoise reads of each token.
struct TokenNoise {
  std::vector<std::int64_t> keys;
  std::vector<float> magnitudes;
};
TokenNoise noise_of(const Batch& batch, const RowNoise& noise);

}  // namespace qtrain
