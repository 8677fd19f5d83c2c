#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/json.h"

namespace qtrain {

/// What a run depends on beside its config: version of the program, device, and hashes of the files of model, tokenizer
/// and adapter in `folders` (equal hashes: equal contents).
Json provenance(Device device, const std::vector<std::filesystem::path>& folders);

}  // namespace qtrain
