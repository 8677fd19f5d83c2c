#pragma once
#include <filesystem>
#include <map>
#include <string>

#include "config/config.h"
#include "core/json.h"

namespace qtrain {

/// What resolved_config.json says of the run in an output directory.
struct RecordedRun {
  std::filesystem::path output;  ///< in full
  std::string version;           ///< of the program
  std::string device;
  std::filesystem::path folder;              ///< that relative names are about
  std::map<std::string, std::string> files;  ///< of model and tokenizer, with content_hash of each
  std::string dialect;
  std::string rows;  ///< fingerprint of the training rows
  Json values;       ///< {key: {"value", "origin"}}
};

/// Errors (ErrorKind::input): the file is missing, or not as this program writes it.
RecordedRun read_recorded_run(const std::filesystem::path& output);

/// A config that asks for the same run, but in `output` and with what `changes` has.
Json recorded_document(const RecordedRun& run, const std::filesystem::path& output,
                       const Json& changes = Json::object());

/// Errors (ErrorKind::input) where `config`, read from such a document, has another value than the run had: names them.
void require_same_values(const RecordedRun& run, const ResolvedConfig& config, const Json& changes = Json::object());

/// The paths of `run.files` whose contents are others now or cannot be read, each with why.
std::map<std::string, std::string> changed_files(const RecordedRun& run);

}  // namespace qtrain
