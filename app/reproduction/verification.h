#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "app/reproduction/recorded_run.h"
#include "core/json.h"
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

struct Verification {
  std::vector<Finding> findings;
  std::vector<RedoneSteps> redone;

  bool holds() const;
  void add(std::string about, std::string problem = "") { findings.push_back({std::move(about), std::move(problem)}); }
};

struct VerificationOptions {
  std::int64_t steps = 1;         ///< at least so many are done again; 0: none
  std::filesystem::path scratch;  ///< where there is room for an output directory
};

/// Holds a run against what is recorded of it: the files of its checkpoints and of its result against their manifests,
/// those it began with against their hashes, and steps, chosen at random, against what comes of doing them again: the
/// weights, the optimizer's state and the logged values bit for bit. Errors: those of read_recorded_run, and of an
/// interruption (ErrorKind::stopped).
Verification verify_run(const std::filesystem::path& output, const VerificationOptions& options, Log& log);

/// An in-toto Statement (v1) about a run that holds: its files as subjects, and as predicate what it was made of.
Json in_toto_statement(const RecordedRun& run, const Verification& verification);

}  // namespace qtrain
