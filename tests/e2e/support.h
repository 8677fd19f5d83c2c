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

/// The repository and the program: those of the build, or QTRAIN_SOURCE_DIR and QTRAIN_PROGRAM if tests run on another
/// machine.
fs::path source_folder();
std::string program();

inline const fs::path kGoldens = source_folder() / "tests/golden/data";
/// A folder with the files of a byte-level tokenizer of 400 entries and a ChatML template.
inline const fs::path kChatml = source_folder() / "tests/data/golden/chatml";

/// A call of qtrain with these words; `folder` and `input` as in Launch.
struct Call {
  std::vector<std::string> words;
  fs::path folder = {};
  std::string input = {};
  std::vector<std::string> environment = {};  ///< NAME=value, in addition to the environment of the tests
};
Launch launch_of(const Call& call);
/// Runs qtrain to its end.
Outcome qtrain(const Call& call);

/// Like `qtrain`, but the test fails with the output unless the exit code is 0.
Outcome qtrain_ok(const Call& call);

/// "key=value" words.
std::vector<std::string> overrides(const Json& values);

/// Writes `config` to config.json in `folder`, trains with it, and expects success.
Outcome train_ok(const fs::path& folder, const Json& config, const std::vector<std::string>& more = {});

/// Updates the manifest of a checkpoint to the current contents of its file `name`.
void reseal(const fs::path& checkpoint, const std::string& name);

/// Names of the checkpoints in an output folder, sorted.
std::vector<std::string> checkpoint_names(const fs::path& output);

/// Rows of `log_history` in a trainer_state.json that have this key.
std::vector<Json> history(const fs::path& output, const char* key);
/// The values of that key in those rows.
std::vector<double> column(const std::vector<Json>& rows, const char* key);

/// log_history without times and speeds, which differ between runs.
Json history_without_times(const fs::path& output);

/// Keys in the order of the file.
std::vector<std::string> keys_of(const Json& object);

std::string bytes_of(const fs::path& file);
std::vector<Json> read_jsonl(const fs::path& file);
std::string jsonl(const std::vector<Json>& rows);

/// Tensors of a safetensors file or folder as doubles.
std::map<std::string, std::vector<double>> tensors_of(const fs::path& path);
/// The largest absolute difference of any element; the test fails if names or sizes differ.
double largest_difference(const fs::path& a, const fs::path& b);
/// The same between signed sums in a file (tests/golden/sums.h) and the sums of weights.
double largest_difference_of_sums(const fs::path& sums, const fs::path& weights);

/// A run on token rows with a tiny golden model, the base of most tests: two rows per micro-batch, two micro-batches
/// per update.
Json tiny_run(const fs::path& output);
/// The same with an adapter with dropout on all linear layers.
Json tiny_lora_run(const fs::path& output);

/// Tests of tiny runs on their own rows.
class RunOver : public ::testing::Test {
 protected:
  /// The outcome of a tiny run on these lines, in the folder of the test.
  Outcome run_over(const std::string& lines, const Json& change = Json::object());
  TempFolder folder_;
};

/// Writes a model folder without weights: a 2-layer Llama with the ChatML tokenizer and its files.
void write_untrained_model(const fs::path& folder);
/// Writes the random weights that a full run would start from into a model folder, because adapters need weights.
void give_random_weights(const fs::path& folder);

/// Checks that runs of every kind on a device use exactly the memory that `qtrain estimate` states.
void expect_estimates_to_hold(const std::string& device);

/// A tokenizer folder in which token `id` is the single character U+0100 + id, for the vocabulary of a golden model.
void write_letter_tokenizer(const fs::path& folder, int size);
std::string letters(const std::vector<int>& ids);

}  // namespace qtrain::e2e
