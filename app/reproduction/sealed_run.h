#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/reproduction/recorded_run.h"
#include "app/reproduction/verification.h"

namespace qtrain {

/// A checkpoint or the result, whose files match the hashes in its manifest.
struct SealedState {
  std::int64_t step = 0;
  std::filesystem::path folder;
  std::optional<Json> state = {};  ///< training_state.json; only for checkpoints

  bool is_resumable() const { return state && state->value("resumable", Json()) == true; }
  /// Whether the checkpoint was saved before an evaluation that was due. A result is always saved after it.
  bool is_pending() const { return state && state->value("events_pending", Json()) == true; }
  /// The identity of the run in the checkpoint.
  const Json& identity() const { return state->at("identity"); }
};

/// Whether a start that was to do more steps saved the checkpoint. A result of the same step is from a later start,
/// which was to do fewer and had none left to do.
bool is_of_longer_run(const SealedState& state);

/// "the result", "checkpoint-4"
std::string name_of(const RecordedRun& run, const std::filesystem::path& folder);
/// The place and cause of an error, as one text.
std::string words_of(const ErrorText& text);

/// Whether a program that loads the model in a folder would read a file of this name.
bool is_read_by_loaders(const std::filesystem::path& name);

/// The undamaged checkpoints and result, by step, with the result after a checkpoint of the same step. Adds a finding
/// for each; a result without a complete manifest is a finding.
std::vector<SealedState> sealed_states(const RecordedRun& run, Verification& v);

/// Checks without running any step that the config, the metrics and the files common to all states agree.
void check_agreement(const RecordedRun& run, const std::vector<SealedState>& states, Verification& v);

/// The keys whose values in a checkpoint differ from the config of the last start: those that people change on purpose
/// when they resume a run.
Json keys_at_checkpoint(const RecordedRun& run, const Json& identity);
/// The number of ranks that wrote the checkpoint.
int ranks_at_checkpoint(const RecordedRun& run, const Json& identity);

}  // namespace qtrain
