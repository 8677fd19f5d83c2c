#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "app/reproduction/relocation.h"
#include "config/config.h"
#include "core/formats/json.h"

namespace qtrain {

/// The record of a run: resolved_config.json in its output directory.
struct RecordedRun {
  std::filesystem::path output;  ///< absolute path
  std::string version;           ///< version of the program
  std::string device;
  std::filesystem::path folder;              ///< folder that relative names refer to, at its present place
  std::map<std::string, std::string> files;  ///< files of model and tokenizer, with their hashes
  std::string dialect;
  std::string rows;        ///< fingerprint of the training rows
  Json values;             ///< {key: {"value", "origin"}}
  Json run;                ///< everything in the file except the config
  int ranks = 1;           ///< over all machines, whatever launcher started them
  Relocation places = {};  ///< present places of files that were moved since
  /// The present path of one of `files`.
  std::filesystem::path file_now(const std::string& name) const;
  /// A string in `run`; empty if the version of the run did not record it.
  std::string noted(const char* name) const;
};

/// The remedy for a missing file.
inline constexpr const char* kHintMoved = "if it was moved, give its new place with --moved OLD=NEW";

/// Parses "OLD=NEW": a file or folder named OLD (absolute, or relative to the folder of the run) is now at NEW.
using NamedMoves = std::vector<std::string>;

/// Throws ErrorKind::input if the file is missing or not as this program writes it, ErrorKind::usage for an invalid
/// move.
RecordedRun read_recorded_run(const std::filesystem::path& output, const NamedMoves& moves = {});

/// A config for the same run on this machine, with names relative to the folder of the run, and the names of moved
/// files.
struct RunDocument {
  Json json;
  Renames renames;
  Json changed;  ///< keys with other values than in the run
};
struct DocumentChanges {
  std::filesystem::path output;
  int ranks = 1;
  Json keys = Json::object();  ///< keys with other values than in the run
};
RunDocument recorded_document(const RecordedRun& run, const DocumentChanges& changes);

/// Whether a key depends on the machine or names the place of the result; such keys may differ from the record.
bool is_machine_key(const std::string& key);

/// Throws ErrorKind::input, with the names of the keys, if `config`, read from such a document, has other values than
/// the run had, or if other keys were recorded.
void require_same_values(const RecordedRun& run, const ResolvedConfig& config, const RunDocument& document);

/// Throws ErrorKind::input if more ranks are recorded than this machine can reasonably run; the file is not trusted.
void require_few_ranks(int ranks);

/// The paths of `run.files` whose contents changed or cannot be read, each with the reason.
std::map<std::string, std::string> changed_files(const RecordedRun& run);

/// Changes to the folder that names in the config are relative to. Throws ErrorKind::input if it is gone.
void enter_folder(const RecordedRun& run);

}  // namespace qtrain
