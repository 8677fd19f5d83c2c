#pragma once
#include <optional>
#include <vector>

#include "config/config.h"
#include "config/dialect_table.h"
#include "core/tensor.h"

namespace qtrain {

/// What expressions of tables know of a config: {key: value}, and in `given` the keys that the user gave.
Json known_values(const ResolvedConfig& config);

/// Sets what follows from values, by the rows of `then` of a table.
void follow(ResolvedConfig& config, const DialectTable& table);

/// Writes out paths with ~, and remarks on values that have no effect beside others (TF32 with 16-bit GEMMs, LoRA keys
/// without an adapter, ...) and, where there is no problem yet, on those that contradict each other.
void check_values(ResolvedConfig& config);

/// What a config does not say of the place where it runs.
struct RunPlace {
  std::optional<int> ranks = {};          ///< that somebody else has started; none: those of the config
  std::optional<DeviceKind> device = {};  ///< of another machine; none: what the config finds on this one
};

/// What the config asks for and this program cannot do there yet, one entry per key, and a missing model_name_or_path.
std::vector<ErrorText> unsupported(const ResolvedConfig& config, const RunPlace& place = {});
/// Whether nothing of that is said of `config` with other values, on a device of the kind.
bool is_supported(ResolvedConfig config, const Config& values, DeviceKind device);
/// Throws ErrorKind::usage with all of `unsupported`, if any.
void require_supported(const ResolvedConfig& config, const RunPlace& place = {});

}  // namespace qtrain
