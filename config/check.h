#pragma once
#include <optional>
#include <vector>

#include "config/config.h"
#include "config/dialect_table.h"
#include "core/tensor.h"

namespace qtrain {

/// The values that expressions in tables can use: {key: value}, and `given`, the list of keys that the user gave.
Json known_values(const ResolvedConfig& config);

/// Whether the condition of a row of a table (`when`) holds for these values, or it has none.
bool rule_applies(const Json& rule, const Json& values);

/// Applies the `then` rows of a table: values that follow from others. Those of a preset stay, as given ones do.
void follow(ResolvedConfig& config, const DialectTable& table);

/// Expands ~ in paths. Adds remarks on values that have no effect because of others (TF32 with 16-bit GEMMs, LoRA keys
/// without an adapter, ...) and, if there are no problems yet, on values that contradict each other.
void check_values(ResolvedConfig& config);

/// Facts about the place of a run that are not in its config.
struct RunPlace {
  std::optional<int> ranks = {};          ///< started by another launcher; none: as in the config
  std::optional<DeviceKind> device = {};  ///< device of another machine; none: the one found here
};

/// What the config requests but the program cannot do at that place, one entry per key; also a missing
/// model_name_or_path.
std::vector<ErrorText> unsupported(const ResolvedConfig& config, const RunPlace& place = {});
/// Whether `unsupported` finds nothing in `config` with these values, on a device of this kind.
bool is_supported(ResolvedConfig config, const Config& values, DeviceKind device);
/// Throws ErrorKind::usage with all of `unsupported`, if any.
void require_supported(const ResolvedConfig& config, const RunPlace& place = {});

}  // namespace qtrain
