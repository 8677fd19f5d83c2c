#pragma once
#include <filesystem>
#include <string>
#include <vector>

/// What lies where a command or a run is to write: its own earlier result, which it replaces, or something else.
namespace qtrain {

/// Where the command stands in a GGUF file whose result it is, as "qtrain export".
inline constexpr const char* kGgufWrittenBy = "qtrain.written_by";
std::string gguf_writer(const std::filesystem::path& file);

/// The same of a model folder: a file beside the model, with sizes and times of the files that the command wrote.
inline constexpr const char* kResultMark = ".qtrain_result.json";
void mark_result(const std::filesystem::path& folder, const std::string& command);
/// The command whose result a folder is; empty where there is none, or its weights were replaced since.
std::string result_writer(const std::filesystem::path& folder);

/// Whether a folder is empty but for what interruptions have left in it, or the result of `command`.
bool is_free_for(const std::string& command, const std::filesystem::path& folder);

/// Whether an output directory holds weights that no run has written there.
bool has_foreign_weights(const std::filesystem::path& output);
/// A usage error then.
void require_no_foreign_weights(const std::filesystem::path& output);

/// A usage error where an output is one of these files or folders, or lies in one. Inputs that are not there count for
/// nothing: whoever reads them says so.
void require_outside(const std::filesystem::path& output, const std::vector<std::filesystem::path>& inputs);

}  // namespace qtrain
