#include <fmt/format.h>

#include <filesystem>

#include "app/commands/commands.h"
#include "app/reproduction/own_process.h"
#include "app/reproduction/recorded_run.h"
#include "core/formats/json.h"
#include "core/os/file.h"
#include "core/os/paths.h"
#include "core/os/stop.h"
#include "core/sha256.h"
#include "core/utf8.h"
#include "core/version.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/manifest.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDocument = "reproduce.json";

void require_inputs(const RecordedRun& run) {
  const auto changed = changed_files(run);
  if (changed.empty()) return;
  fail(ErrorKind::input, {.cause = changed.begin()->second,
                          .place = changed.begin()->first,
                          .remedy = "restore the files that the run was trained with"});
}

// Compares the final weights of the two runs if both are finished.
void compare(const fs::path& before, const fs::path& now, Log& log) {
  if (!manifest_step(before) || !manifest_step(now)) return;
  for (const std::string& name : sealed_files(now)) {
    if (!name.ends_with(".safetensors")) continue;
    const bool same = path_exists(before / name) && sha256_of_file(before / name) == sha256_of_file(now / name);
    if (!same)
      return log.warn("{} differs from that of {}: another processor, GPU or version rounds differently", name,
                      one_line(before.string()));
  }
  log.info("the weights are bit for bit those of {}", one_line(before.string()));
}

// The recorded config may come from another machine, so it must not set this machine's cache or metrics port.
Json keys_of_this_machine() {
  return {{"token_cache_dir", nullptr}, {"token_cache_gb", DataSection{}.token_cache_gb}, {"prometheus_port", nullptr}};
}

// Checks that an existing file was left by an interrupted `qtrain reproduce`, not written by the user.
void require_own_document(const fs::path& file) {
  if (!path_exists(file)) return;
  const Json json = json_in(read_text(file));
  if (json.is_object() && json.contains("dialect") && json.value("output_dir", Json()) == file.parent_path().string())
    return;
  fail(ErrorKind::usage, {.cause = "exists and was not written by qtrain reproduce",
                          .place = file.string(),
                          .remedy = "choose another folder with --output, or move the file away"});
}

}  // namespace

int run_reproduce(const Arguments& args) {
  const RecordedRun run = read_recorded_run(real_path(args.operand(0)), args.all("moved"));
  const fs::path output = real_path(args.required("output"));
  if (output == run.output)
    fail(ErrorKind::usage, {.cause = "is the output directory of the recorded run", .place = "--output"});
  if (path_exists(output / kResolvedConfig))
    fail(ErrorKind::usage, {.cause = output.string() + " already holds another run", .place = "--output"});
  Log& log = args.log();
  if (run.version != kVersion)
    log.warn("the run was made with qtrain {}, but this is {}: defaults and rounding may differ", run.version,
             kVersion);
  require_few_ranks(run.ranks);
  enter_folder(run);
  require_inputs(run);
  create_folders(output);
  const fs::path file = output / kDocument;
  require_own_document(file);
  const RunDocument document =
      recorded_document(run, {.output = output, .ranks = run.ranks, .keys = keys_of_this_machine()});
  write_file(file, dump_json(document.json, 2) + "\n");
  require_same_values(run, load_config(file), document);
  std::vector<std::string> words{"train", file.string(), "--resume", "never"};
  if (args.json()) words.emplace_back("--json");
  if (args.has("quiet")) words.emplace_back("--quiet");
  set_stop_answer("");  // the run prints the answer
  const OwnProcessEnd end = run_own_process(words, OwnProcessOutput::shown);
  if (end.error) throw Error(*end.error);
  if (end.exit_code == 0) compare(run.output, output, log);
  return end.exit_code;
}

}  // namespace qtrain
