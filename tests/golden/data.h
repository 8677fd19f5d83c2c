#pragma once
#include <filesystem>

namespace qtrain::testing {

/// Small random models and the results of transformers for them, in one folder each.
inline const std::filesystem::path kData = QTRAIN_SOURCE_DIR "/tests/golden/data";

}  // namespace qtrain::testing
