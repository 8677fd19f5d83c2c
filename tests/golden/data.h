#pragma once
#include <filesystem>

namespace qtrain::testing {

/// Small random models and what transformers computes with them, one folder each.
inline const std::filesystem::path kData = QTRAIN_SOURCE_DIR "/tests/golden/data";

}  // namespace qtrain::testing
