#pragma once
#include <optional>
#include <string>
#include <vector>

#include "core/formats/json.h"
#include "data/token_rows.h"
#include "train/setup/model_setup.h"

namespace qtrain {

/// Key of the chat template's date in an identity.
inline constexpr const char* kTemplateDate = "template_date";

/// Inputs of run_identity.
struct RunParts {
  const Config& config;
  const ModelSetup& setup;
  const Dataset &train, &evaluation;
  std::string template_date;  ///< empty: the template does not use the date
  const Json& provenance;     ///< the device and the hashes of all files
  int ranks = 1;              ///< total over all machines
};

/// What a checkpoint records about its run: {"keys": config values in force, "model": config.json, "weights" and
/// "text": hashes of the input files, "rows", "evaluation rows", "device", "products": the precision of GEMMs}.
Json run_identity(const RunParts& parts, MatmulPrecision matmul);

/// Throws ErrorKind::input if an identity read from a file lacks a part.
void require_identity(const Json& identity, const std::string& place);

/// Differences between a run and the run of a checkpoint.
struct RunChanges {
  std::vector<std::string> refused;  ///< not allowed: "lora_alpha = 8.0, the config says 64.0"
  std::vector<std::string> told;     ///< changed on purpose: "learning_rate 0.0001 (was 2e-05)"
};
/// Both identities must be complete (require_identity).
RunChanges run_changes(const Json& saved, const Json& now);

/// Canonical form of a config value: LoRA targets expanded, module lists sorted, an optimizer replaced by its rule.
Json comparable_value(std::string_view key, const Json& value);

/// The template date in an identity, if any.
std::optional<std::string> template_date_of(const Json& identity);

}  // namespace qtrain
