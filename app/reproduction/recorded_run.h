#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "app/reproduction/relocation.h"
#include "config/config.h"
#include "core/formats/json.h"

namespace qtrain {

/// What resolved_config.json says of the run in an output directory.
struct RecordedRun {
  std::filesystem::path output;  ///< in full
  std::string version;           ///< of the program
  std::string device;
  std::filesystem::path folder;              ///< that relative names are about, where it is now
  std::map<std::string, std::string> files;  ///< of model and tokenizer, with the hash of each
  std::string dialect;
  std::string rows;        ///< fingerprint of the training rows
  Json values;             ///< {key: {"value", "origin"}}
  Json run;                ///< all that the file says beside the config
  int ranks = 1;           ///< over all machines, whoever started them
  Relocation places = {};  ///< of what was moved since
  /// The path of one of `files` now.
  std::filesystem::path file_now(const std::string& name) const;
  /// A text of `run`, empty where a younger program writes it.
  std::string noted(const char* name) const;
};

/// What to do about a file that is not there.
inline constexpr const char* kSayWhere = "--moved OLD=NEW says where it is now";

/// "OLD=NEW": where a file or folder is now whose name, in full or about the folder of the run, was OLD.
using NamedMoves = std::vector<std::string>;

/// Errors: ErrorKind::input where the file is missing, or not as this program writes it; ErrorKind::usage for a move
/// that is none.
RecordedRun read_recorded_run(const std::filesystem::path& output, const NamedMoves& moves = {});

/// A config that asks for the same run on this machine, whose names are about the folder of the run; and the names in
/// it of files that were moved.
struct RunDocument {
  Json json;
  Renames renames;
  Json changed;  ///< keys that were to have other values than in the run
};
struct DocumentChanges {
  std::filesystem::path output;
  int ranks = 1;
  Json keys = Json::object();  ///< that have other values than in the run
};
RunDocument recorded_document(const RecordedRun& run, const DocumentChanges& changes);

/// What the machine decides, and where the result lies: such a key is as it was recorded, whatever it was.
bool is_of_place(const std::string& key);

/// Errors (ErrorKind::input) where `config`, read from such a document, has another value than the run had, and where
/// other keys were recorded: names them.
void require_same_values(const RecordedRun& run, const ResolvedConfig& config, const RunDocument& document);

/// Errors (ErrorKind::input): more ranks are recorded than this machine can well run; the file may be anybody's.
void require_few_ranks(int ranks);

/// The paths of `run.files` whose contents are others now or cannot be read, each with why.
std::map<std::string, std::string> changed_files(const RecordedRun& run);

/// Goes to the folder that names in the config are about. Errors (ErrorKind::input): it is gone.
void enter_folder(const RecordedRun& run);

}  // namespace qtrain
