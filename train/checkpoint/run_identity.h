#pragma once
#include <optional>
#include <string>
#include <vector>

#include "core/formats/json.h"
#include "data/token_rows.h"
#include "train/setup/model_setup.h"

namespace qtrain {

/// The day that the chat template writes, among the keys of an identity.
inline constexpr const char* kTemplateDate = "template_date";

/// What a run is made of.
struct RunParts {
  const Config& config;
  const ModelSetup& setup;
  const Dataset &train, &evaluation;
  std::string template_date;  ///< empty: the template does not write it
  const Json& provenance;     ///< of the device and of all files
  int ranks = 1;              ///< over all machines
};

/// What a checkpoint remembers of its run: {"keys": values of the config as they are in force, "model": config.json,
/// "weights" and "text": hashes of the files it began with, "rows", "evaluation rows", "device", "products": the
/// precision of GEMMs}.
Json run_identity(const RunParts& parts, MatmulPrecision matmul);

/// An input error where an identity that was read from a file lacks a part.
void require_identity(const Json& identity, const std::string& place);

/// How a run differs from that of a checkpoint.
struct RunChanges {
  std::vector<std::string> refused;  ///< what cannot be: "lora_alpha = 8.0, the config says 64.0"
  std::vector<std::string> told;     ///< what was changed on purpose: "learning_rate 0.0001 (was 2e-05)"
};
/// Both have to be whole.
RunChanges run_changes(const Json& saved, const Json& now);

/// A value of a key in the one of the forms that mean the same: targets of LoRA expanded, lists of modules sorted, an
/// optimizer by its rule.
Json comparable_value(std::string_view key, const Json& value);

/// The day that an identity holds, if any.
std::optional<std::string> template_date_of(const Json& identity);

}  // namespace qtrain
