#pragma once
#include <filesystem>
#include <set>

#include "app/reproduction/verification.h"
#include "core/formats/json.h"

namespace qtrain {

/// What the provenance says it is about.
inline constexpr const char* kBuildType = "urn:qtrain:training:1";

/// The data files that the config of a run names, relative to the folder of the run, which must be the current one.
std::set<std::filesystem::path> recorded_data_files(const RecordedRun& run);

/// An in-toto Statement (v1) with a SLSA Provenance (v1) about a verified run, as in their protobuf definitions.
/// Subjects: the files of the result. Predicate: the values that decide results, the SHA-256 of all inputs, and the
/// checks that were made, in fields with our prefix.
Json in_toto_statement(const RecordedRun& run, const Verification& verification);

}  // namespace qtrain
