#include "app/commands/read_files.h"

#include "app/reproduction/sealed_run.h"
#include "config/named_files.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/checkpoint_folders.h"
#include "train/checkpoint/manifest.h"
#include "train/setup/dataset_setup.h"
#include "train/setup/provenance.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;
using Paths = std::vector<fs::path>;

void append(Paths& all, const Paths& more) {
  all.insert(all.end(), more.begin(), more.end());
}

Paths files_of_rows(const DataSection& data, Split split) {
  Paths files;
  for (const Paths& of_source : data_files(data, split)) append(files, of_source);
  return files;
}

}  // namespace

Paths files_of_model(const std::string& name) {
  std::error_code error;
  if (!name.empty() && fs::is_regular_file(name, error)) return {name};
  Paths files;
  for (fs::directory_iterator it(name, error), end; !error && it != end; it.increment(error))
    if (is_read_by_loaders(it->path())) files.push_back(it->path());
  return files;
}

Paths files_of_run(const fs::path& output) {
  Paths files = files_of_model(output.string());
  for (const char* name :
       {kManifest, kResolvedConfig, kTrainResults, kTrainerState, kMetrics, "messages.jsonl", "samples.jsonl"})
    files.push_back(output / name);
  append(files, find_checkpoints(output));
  return files;
}

Paths files_of_config(const Arguments& args, const Config& config) {
  return files_of_config({.file = args.operand(0), .overrides = args.overrides()}, config);
}

Paths files_of_config(const ConfigSource& source, const Config& config) {
  Paths files{source.file};
  append_listed(files, [&] { return files_read_with_config(source.file, source.overrides); });
  files.insert(files.end(), config.training.sample_prompts.begin(), config.training.sample_prompts.end());
  for (const Split split : {Split::train, Split::evaluation})
    append_listed(files, [&] { return files_of_rows(config.data, split); });
  append(files, files_of_model(config.model.model_name_or_path));
  append(files, files_of_model(config.model.adapter_name_or_path.value_or("")));
  append_listed(files, [&] { return text_files(config); });
  return files;
}

}  // namespace qtrain
