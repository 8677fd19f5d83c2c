#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/reproduction/recorded_run.h"
#include "app/reproduction/verification.h"

namespace qtrain {

/// A checkpoint or the result, whose files have the hashes of its manifest.
struct SealedState {
  std::int64_t step = 0;
  std::filesystem::path folder;
  std::optional<Json> state = {};  ///< training_state.json, of a checkpoint

  bool is_resumable() const { return state && state->value("resumable", Json()) == true; }
  /// What the checkpoint remembers of its run.
  const Json& identity() const { return state->at("identity"); }
};

/// "the result", "checkpoint-4"
std::string name_of(const RecordedRun& run, const std::filesystem::path& folder);
/// Place and cause.
std::string words_of(const ErrorText& text);

/// Whether a program that loads the model in a folder would read a file of this name.
bool is_read_by_loaders(const std::filesystem::path& name);

/// The checkpoints and the result that are what was saved, by step, the result behind a checkpoint of its step;
/// findings about all. A result without a whole manifest is one.
std::vector<SealedState> sealed_states(const RecordedRun& run, Verification& v);

/// Holds what lies there against each other, without doing any step: the config, the metrics and the files that have to
/// be the same in all states.
void check_agreement(const RecordedRun& run, const std::vector<SealedState>& states, Verification& v);

/// The keys that a checkpoint was made with and that are others in the config of the last start: what people change on
/// purpose when a run goes on.
Json keys_of_then(const RecordedRun& run, const Json& identity);
/// The ranks that it was made with.
int ranks_of_then(const RecordedRun& run, const Json& identity);

}  // namespace qtrain
