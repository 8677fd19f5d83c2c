#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/formats/json.h"
#include "tests/core/temp_folder.h"
#include "tests/e2e/process.h"

namespace qtrain::e2e {

using qtrain::testing::TempFolder;

namespace fs = std::filesystem;

/// The repository and the program: those of the build, or QTRAIN_SOURCE_DIR and QTRAIN_PROGRAM of the environment where
/// tests run on another machine.
fs::path source_folder();
std::string program();

inline const fs::path kGoldens = source_folder() / "tests/golden/data";
/// A folder with the files of a byte-level tokenizer of 400 entries and a ChatML template.
inline const fs::path kChatml = source_folder() / "tests/data/golden/chatml";

/// Starts qtrain with these words; `folder` and `input` as in Launch.
struct Call {
  std::vector<std::string> words;
  fs::path folder = {};
  std::string input = {};
  std::vector<std::string> environment = {};  ///< NAME=value, in addition to the environment of the tests
};
Launch launch_of(const Call& call);
/// Runs qtrain to its end.
Outcome qtrain(const Call& call);

/// As `qtrain`, a test failure with what it said unless it ends with code 0.
Outcome qtrain_ok(const Call& call);

/// "key=value" words.
std::vector<std::string> overrides(const Json& values);

/// Trains with `config` (written into `folder` as config.json) and expects success.
Outcome train_ok(const fs::path& folder, const Json& config, const std::vector<std::string>& more = {});

/// Lets the manifest of a checkpoint say what its file `name` holds now.
void reseal(const fs::path& checkpoint, const std::string& name);

/// Names of the checkpoints in an output folder, sorted.
std::vector<std::string> checkpoint_names(const fs::path& output);

/// Rows of `log_history` in a trainer_state.json that have this key.
std::vector<Json> history(const fs::path& output, const char* key);
/// One value of each of those rows.
std::vector<double> column(const std::vector<Json>& rows, const char* key);

/// log_history without what differs from run to run: times and speeds.
Json history_without_times(const fs::path& output);

/// Keys in the order of the file.
std::vector<std::string> keys_of(const Json& object);

std::string bytes_of(const fs::path& file);
std::vector<Json> read_jsonl(const fs::path& file);
std::string jsonl(const std::vector<Json>& rows);

/// Tensors of a safetensors file or folder as doubles.
std::map<std::string, std::vector<double>> tensors_of(const fs::path& path);
/// The largest absolute difference of any element; a failure when names or sizes differ.
double largest_difference(const fs::path& a, const fs::path& b);

/// A run over token rows on a tiny golden model: the base of most tests. Two rows a micro-batch, two of them an update.
Json tiny_run(const fs::path& output);
/// The same with an adapter on all linear layers, with dropout.
Json tiny_lora_run(const fs::path& output);

/// Tests of tiny runs over rows of their own.
class RunOver : public ::testing::Test {
 protected:
  /// The outcome of a tiny run over these lines, in a folder that a test keeps.
  Outcome run_over(const std::string& lines, const Json& change = Json::object());
  TempFolder folder_;
};

/// Writes a model folder without weights: a Llama of 2 layers for the ChatML tokenizer, with its files.
void write_untrained_model(const fs::path& folder);
/// Gives a model folder the weights that a run of all of them begins with at random, as adapters need them.
void give_random_weights(const fs::path& folder);

/// Runs of every kind on a device use the memory that `qtrain estimate` says, to the byte.
void expect_estimates_to_hold(const std::string& device);

/// A tokenizer folder whose token `id` is the one character U+0100 + id, for the vocabulary of a golden model.
void write_letter_tokenizer(const fs::path& folder, int size);
std::string letters(const std::vector<int>& ids);

}  // namespace qtrain::e2e
