#pragma once
#include "tests/e2e/support.h"

namespace qtrain::e2e {

/// Compares every step of a run with noise on the embeddings with what transformers' Trainer logs with the same noise
/// (tests/train/make_recipe_goldens.py). The tolerance is four times what the Trainer differs by in float64.
inline void expect_noisy_curve(const std::string& name, const std::string& device) {
  const TempFolder output;
  const fs::path folder = source_folder() / "tests/train/recipe_goldens" / name;
  qtrain_ok({.words = {"config.json", "output_dir=" + (output / "out").string(), "threads=1", "device=" + device},
             .folder = folder});
  const Json expected = read_json(folder / "expected.json");
  const auto rows = history(output / "out", "loss");
  ASSERT_EQ(rows.size(), expected.at("steps").size());
  const auto within = [&](const char* what) { return 4 * expected.at("spread").at(what).get<double>() + 1e-6; };
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (const char* what : {"loss", "grad_norm"})
      EXPECT_NEAR(rows[i].at(what), expected.at("steps")[i].at(what), within(what)) << what << ", step " << i + 1;
}

}  // namespace qtrain::e2e
