#pragma once
#include <filesystem>
#include <string>
#include <vector>

/// Detects whether an output location contains an earlier result of the same command, which may be replaced, or
/// something else.
namespace qtrain {

/// GGUF metadata key that names the command that wrote the file, such as "qtrain export".
inline constexpr const char* kGgufWrittenBy = "qtrain.written_by";
std::string gguf_writer(const std::filesystem::path& file);

/// The same for a model folder: a file next to the model, with sizes and times of the files that the command wrote.
inline constexpr const char* kResultMark = ".qtrain_result.json";
void mark_result(const std::filesystem::path& folder, const std::string& command);
/// The command that wrote a folder; empty if none did or if its weights were replaced since.
std::string result_writer(const std::filesystem::path& folder);

/// Whether a folder contains nothing but leftovers of interruptions, or a result of `command`.
bool is_free_for(const std::string& command, const std::filesystem::path& folder);

/// Whether a run writes or removes a file of this name in its output directory.
bool is_file_of_run(const std::string& name);
/// Whether an output directory contains weights that no run wrote.
bool has_foreign_weights(const std::filesystem::path& output);
/// Throws ErrorKind::usage if a run in the output directory would damage another run: the directory is in a checkpoint,
/// or has links to files of another run.
void require_other_runs_stay(const std::filesystem::path& output);
/// Throws ErrorKind::usage in both cases, and also if the output directory contains other files that a run would
/// replace although no run has written to it.
void require_no_foreign_results(const std::filesystem::path& output);

/// Throws ErrorKind::usage if a run would replace one of these inputs by writing to the output directory.
void require_inputs_stay(const std::filesystem::path& output, const std::vector<std::filesystem::path>& inputs);

/// Throws ErrorKind::usage if the output is one of these files or folders, or lies inside one. Missing inputs are
/// ignored: whoever reads them reports that.
void require_outside(const std::filesystem::path& output, const std::vector<std::filesystem::path>& inputs);

/// Throws ErrorKind::usage if the file would damage a checkpoint, as one that it seals does, and one that a run or
/// another program would take for a part of it.
void require_no_file_of_checkpoint(const std::filesystem::path& file);
/// Throws ErrorKind::usage if the folder is in a checkpoint.
void require_no_folder_of_checkpoint(const std::filesystem::path& folder);
/// Throws ErrorKind::usage if the run in the output directory writes, replaces or removes the file.
void require_no_file_of_run(const std::filesystem::path& file, const std::filesystem::path& output);

}  // namespace qtrain
