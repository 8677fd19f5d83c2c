#include "app/reproduction/statement.h"

#include <set>

#include "config/fields.h"
#include "core/os/file.h"
#include "core/sha256.h"
#include "core/version.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/run_identity.h"
#include "train/setup/dataset_setup.h"
#include "train/setup/provenance.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

Json resource(const std::string& name, const std::string& sha256) {
  return {{"name", name}, {"digest", {{"sha256", sha256}}}};
}

// The config of the run as this version reads it.
ResolvedConfig config_of(const RecordedRun& run) {
  const RunDocument document = recorded_document(run, {.output = run.output, .ranks = run.ranks});
  return parse_config(dump_json(document.json), kResolvedConfig);
}

// The values that results depend on, and the names of the model, whose files are among the dependencies. The number of
// ranks is an internal parameter, because a launcher may set it without a key. Another version may have recorded fewer
// keys; for the missing ones, the repeated steps used the defaults of this version.
Json parameters_of(const RecordedRun& run) {
  Json parameters = Json::object(), values = resolved_json(config_of(run))["values"];
  values.update(run.values);
  for (const auto& [key, value] : values.items()) {
    if (is_machine_key(key)) continue;
    if (on_resume(key) != OnResume::silent || key == "model_name_or_path" || key == "adapter_name_or_path")
      parameters[key] = value["value"];
  }
  if (const std::string date = run.noted(kTemplateDate); !date.empty()) parameters[kTemplateDate] = date;
  return parameters;
}

// Adds the data files with their present hashes: repeating the steps has shown that they give the rows of the run.
void add_data_files(const RecordedRun& run, Json& inputs) {
  for (const fs::path& file : recorded_data_files(run)) inputs.push_back(resource(file.string(), sha256_of_file(file)));
}

Json inputs_of(const RecordedRun& run) {
  Json inputs = Json::array();
  for (const auto& [name, hash] : run.files) inputs.push_back(resource(name, sha256_of_file(run.file_now(name))));
  for (const char* rows : {"training_data", "evaluation_data"})
    if (const std::string sha256 = run.noted((std::string(rows) + "_sha256").c_str()); !sha256.empty())
      inputs.push_back(resource(std::string("qtrain_") + rows, sha256));
  add_data_files(run, inputs);
  return inputs;
}

// The program that made the run. If it is not this program, only its results were checked.
Json builder_of(const RecordedRun& run, const std::string& own) {
  const std::string program = run.noted("program_sha256");
  Json builder{{"id", "urn:qtrain:" + run.version}, {"version", {{"qtrain", run.version}}}};
  if (program.empty()) return builder;
  Json made_by = resource("qtrain " + run.version, program);
  made_by["annotations"] = {{"qtrain_isProgramOfVerification", program == own}};
  builder["builderDependencies"] = Json::array({std::move(made_by)});
  return builder;
}

// If the run was resumed with other values, its last config alone does not describe it.
Json internal_parameters_of(const RecordedRun& run, const Verification& verification) {
  Json parameters{{"qtrain_device", run.device}, {"qtrain_ranks", run.ranks}};
  for (const EarlierValues& e : verification.earlier)
    parameters["qtrain_earlierValues"].push_back({{"untilStep", e.until}, {"values", e.values}, {"ranks", e.ranks}});
  return parameters;
}

Json verification_of(const Verification& verification, const std::string& own) {
  Json redone = Json::array();
  for (const RedoneSteps& s : verification.redone) redone.push_back({{"first", s.from + 1}, {"last", s.to}});
  Json by = resource("qtrain_verification", own);
  by["annotations"] = {{"qtrain_verifiedWith", "qtrain " + std::string(kVersion)},
                       {"qtrain_stepsDoneAgain", std::move(redone)}};
  return by;
}

}  // namespace

std::set<fs::path> recorded_data_files(const RecordedRun& run) {
  const ResolvedConfig config = config_of(run);
  std::set<fs::path> named;  // held-out rows come from the training files
  for (const Split split : {Split::train, Split::evaluation})
    for (const auto& files : data_files(config.value.data, split)) named.insert(files.begin(), files.end());
  return named;
}

Json in_toto_statement(const RecordedRun& run, const Verification& verification) {
  Json subjects = Json::array();
  // Uses the hashes from the comparison: the files may have changed while other steps were repeated.
  for (const auto& [name, sha256] : verification.result) subjects.push_back(resource(name, sha256));
  const std::string own = own_program_hash();
  return {{"_type", "https://in-toto.io/Statement/v1"},
          {"subject", std::move(subjects)},
          {"predicateType", "https://slsa.dev/provenance/v1"},
          {"predicate",
           {{"buildDefinition",
             {{"buildType", kBuildType},
              {"externalParameters", parameters_of(run)},
              {"internalParameters", internal_parameters_of(run, verification)},
              {"resolvedDependencies", inputs_of(run)}}},
            {"runDetails",
             {{"builder", builder_of(run, own)}, {"byproducts", Json::array({verification_of(verification, own)})}}}}}};
}

}  // namespace qtrain
