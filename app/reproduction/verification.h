#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "app/reproduction/recorded_run.h"
#include "core/log.h"

namespace qtrain {

/// One checked item ("files of checkpoint-4") and what is wrong with it; empty: nothing.
struct Finding {
  std::string about, problem;
};

/// Steps that were repeated: from the start or a checkpoint to the next sealed state.
struct RedoneSteps {
  std::int64_t from = 0, to = 0;
};

/// Values used for the steps up to a checkpoint, if the run was resumed with other values later.
struct EarlierValues {
  std::int64_t until = 0;
  Json values = Json::object();  ///< {key: value}
  int ranks = 1;
};

struct Verification {
  std::vector<Finding> findings;
  std::vector<RedoneSteps> redone;
  std::vector<EarlierValues> earlier;
  bool resumed_later = false;                 ///< whether a later start has made checkpoints after the result
  std::map<std::string, std::string> result;  ///< SHA-256 of the reproduced files of the result, by name

  bool holds() const;
  void add(std::string about, std::string problem = "") { findings.push_back({std::move(about), std::move(problem)}); }
};

struct VerificationOptions {
  /// Values that the user gives for the steps up to a point at which the run was resumed with other values, if the
  /// checkpoint there is gone.
  std::map<std::int64_t, Json> earlier = {};
  std::int64_t steps = 1;         ///< minimum number of steps to repeat besides those that lead to the result; 0: none
  std::filesystem::path scratch;  ///< folder with room for an output directory
  Log& log;
};

/// Verifies a run against its records: the files of checkpoints and result against their manifests, the inputs against
/// their hashes, all states against each other, and steps against repeating them, which must reproduce every sealed
/// file byte for byte except for times. Throws ErrorKind::stopped on interruption.
Verification verify_run(const RecordedRun& run, const VerificationOptions& options);

}  // namespace qtrain
