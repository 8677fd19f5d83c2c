#pragma once
#include <filesystem>
#include <set>

#include "app/reproduction/verification.h"
#include "core/formats/json.h"

namespace qtrain {

/// The files of rows that the config of a run names, about its folder, which is the current one.
std::set<std::filesystem::path> recorded_data_files(const RecordedRun& run);

/// An in-toto Statement (v1) with a SLSA Provenance (v1) about a run that holds, as their protobuf definitions have
/// them: the files of the result as subjects; as predicate the values that decide results, what the run began with by
/// SHA-256, and what was done to check it, in fields of our prefix.
Json in_toto_statement(const RecordedRun& run, const Verification& verification);

}  // namespace qtrain
