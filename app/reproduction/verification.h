#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "app/reproduction/recorded_run.h"
#include "core/log.h"

namespace qtrain {

/// One thing that was looked at: "files of checkpoint-4", and what is wrong with it; empty: nothing.
struct Finding {
  std::string about, problem;
};

/// Steps that were done again: from the start or a checkpoint to the next state that is sealed.
struct RedoneSteps {
  std::int64_t from = 0, to = 0;
};

/// Values that steps up to a checkpoint were done with, where the config of the run has others: it was gone on with
/// anew.
struct EarlierValues {
  std::int64_t until = 0;
  Json values = Json::object();  ///< of keys
  int ranks = 1;
};

struct Verification {
  std::vector<Finding> findings;
  std::vector<RedoneSteps> redone;
  std::vector<EarlierValues> earlier;
  std::map<std::string, std::string> result;  ///< SHA-256 of the files of the result that were made again, by name

  bool holds() const;
  void add(std::string about, std::string problem = "") { findings.push_back({std::move(about), std::move(problem)}); }
};

struct VerificationOptions {
  /// Values of keys that the steps up to one were done with, as somebody says who knows: the checkpoint there, from
  /// which the run went on with others, is gone.
  std::map<std::int64_t, Json> earlier = {};
  std::int64_t steps = 1;         ///< beside those that lead to the result, at least so many are done again; 0: none
  std::filesystem::path scratch;  ///< where there is room for an output directory
  Log& log;
};

/// Holds a run against what is recorded of it: the files of its checkpoints and of its result against their manifests,
/// those it began with against their hashes, all of them against each other, and steps against what comes of doing them
/// again, which has to be every sealed file, byte for byte but for times. Errors: of an interruption
/// (ErrorKind::stopped).
Verification verify_run(const RecordedRun& run, const VerificationOptions& options);

}  // namespace qtrain
