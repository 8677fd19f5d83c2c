#include "train/run/train.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string_view>
#include <thread>

#include "app/cli/hub_arguments.h"
#include "app/commands/commands.h"
#include "app/commands/read_files.h"
#include "app/next_commands.h"
#include "app/pushing.h"
#include "config/check.h"
#include "config/fields.h"
#include "config/remarks.h"
#include "core/device.h"
#include "core/os/stop.h"
#include "core/parallel.h"
#include "core/plural.h"
#include "core/version.h"
#include "dist/final_error.h"
#include "dist/launcher.h"
#include "dist/rank_group.h"
#include "train/checkpoint/checkpoint_folders.h"
#include "train/checkpoint/foreign_results.h"
#include "train/setup/compute.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr int kPeerLost = static_cast<int>(ErrorKind::peer);
constexpr std::chrono::seconds kGrace{10}, kEndTogether{60};
constexpr const char* kRestarted = "QTRAIN_RESTARTED";  // set in ranks that were restarted after a rank was lost

// The command line of this process.
std::vector<std::string> own_command() {
  std::ifstream words("/proc/self/cmdline");
  std::vector<std::string> command;
  for (std::string word; std::getline(words, word, '\0');) command.push_back(word);
  return command;
}

Launch launch_of(const RunSection& run) {
  return {.command = own_command(),
          .ranks = static_cast<int>(run.nproc),
          .nodes = static_cast<int>(run.nnodes),
          .node = static_cast<int>(run.node_rank),
          .meeting = {.host = run.master_addr, .port = static_cast<std::uint16_t>(run.master_port)},
          .grace = std::min(kGrace, std::chrono::seconds(run.ddp_timeout)),
          .end_together = std::min(kEndTogether, std::chrono::seconds(run.ddp_timeout))};
}

// Whether a run that began at `start` has saved a checkpoint to resume from.
bool has_saved(const fs::path& output, fs::file_time_type start) {
  const std::vector<fs::path> checkpoints = find_checkpoints(output);
  return !checkpoints.empty() && fs::last_write_time(checkpoints.back()) >= start;
}

void warn_of_sharing(const RunSection& run, Log& log) {
  const int processors = usable_processors();
  const bool on_processors = run.device == DeviceChoice::cpu || cuda_device_count() == 0;
  if (on_processors && run.nproc > processors)
    log.warn("{} ranks share {} and slow each other down: set a smaller nproc", run.nproc,
             counted(processors, "processor"));
}

int launch_run(const Config& config, Log& log) {
  set_stop_answer("");  // rank 0 prints the answer
  Launch launch = launch_of(config.run);
  const fs::file_time_type start = fs::file_time_type::clock::now();
  log.info("starting {} on this machine, {} in total{}", counted(launch.ranks, "rank"), launch.ranks * launch.nodes,
           launch.nodes > 1 ? ", which meet at " + launch.meeting.text() : "");
  warn_of_sharing(config.run, log);
  log.share_terminal();  // with rank 0
  LaunchEnd end = launch_ranks(launch, log);
  for (std::int64_t left = config.run.max_restarts; left > 0 && end.exit_code == kPeerLost && !stop_requested();
       --left) {
    if (end.cause) log.warn("{}", end.cause->text().cause);
    const bool saved = has_saved(config.training.output_dir, start);
    log.warn("restarting the ranks{}; {} more restarts allowed", saved ? " from the last checkpoint" : "", left - 1);
    if (saved) ::setenv(kRestarted, "1", 1);
    ++launch.attempt;
    end = launch_ranks(launch, log);
  }
  if (end.cause) throw *end.cause;  // NOLINT(cert-err60-cpp): reported with all other errors
  return end.exit_code;
}

// Applies this machine's place among the nodes, as Kubernetes assigns it, unless the config sets node_rank.
void settle_in(const NodePlace& place, ResolvedConfig& config) {
  if (config.given("node_rank")) return;
  RunSection& run = config.value.run;
  run.nnodes = place.nodes;
  run.node_rank = place.node;
  run.master_addr = place.meeting.host;
  run.master_port = place.meeting.port;
}

// Applies this rank's place: it shares the machine with other ranks, and only rank 0 logs.
void settle_in(const RankPlace& place, ResolvedConfig& config, Log& log) {
  // If a scheduler has bound this process to some of the processors, it need not share them.
  const int all = static_cast<int>(std::thread::hardware_concurrency()), usable = usable_processors();
  const int mine = usable < all ? usable : std::max(1, usable / place.local_size);
  if (config.value.run.threads == 0) config.value.run.threads = mine;
  const bool by_another = place.launcher != "qtrain";  // the launcher, not the config, sets the number of ranks
  if (by_another || !config.given("nproc")) config.value.run.nproc = place.local_size;
  if (by_another) config.value.run.nnodes = std::max(1, place.size / std::max(1, place.local_size));
  if (place.rank > 0) log.set_level(std::max(log.level(), LogLevel::error));
  if (place.launcher == "qtrain") return;
  log.info("rank {} of {}, started by {}", place.rank, place.size, place.launcher);
  if (config.value.run.max_restarts > 0)
    log.warn("max_restarts has no effect: {} started the ranks, so only it can restart them", place.launcher);
}

// Settings that must be equal on all ranks: the keys that the result or the communication depends on. The number of
// ranks on a machine may differ.
RankSettings settings_of(const RankPlace& place, const Config& config, const Device& device) {
  constexpr std::array<std::string_view, 7> kExchanged{
      "overlap_comm",      "context_parallel_heads", "gradient_checkpointing", "activation_offloading",
      "optimizer_offload", "weight_offload",         "use_cuda_graphs"};
  RankSettings settings{{"the number of ranks", std::to_string(place.size)},
                        {"the version of qtrain", std::string(kVersion)},
                        {"the kind of its device", device.kind == DeviceKind::cpu ? "processors" : "a GPU"}};
  const Json values = values_json(config);
  for (const auto& [key, value] : values.items())
    if (key != "nproc" &&
        (on_resume(key) != OnResume::silent || std::ranges::find(kExchanged, key) != kExchanged.end()))
      settings[key] = dump_json(value);
  return settings;
}

// Refuses outputs that would replace what the run reads. Another launcher has not checked that for its ranks.
void require_kept_inputs(const Arguments& args, const ResolvedConfig& config) {
  const std::vector<fs::path> inputs = files_of_config(args, config.value);
  if (const auto file = args.text("events")) {
    require_outside(*file, inputs);
    require_no_file_of_run(*file, config.value.training.output_dir);
  }
  require_inputs_stay(config.value.training.output_dir, inputs);
}

// Prints messages about ranks that cannot connect, once on each machine, even if its ranks are otherwise silent.
std::function<void(const std::string&)> connection_messages(const RankPlace& place, Log& log) {
  if (place.rank == 0) return [&log](const std::string& text) { log.warn("{}", text); };
  if (place.local_rank > 0) return {};
  return [&log](const std::string& text) { log.pass_on(fmt::format("warning: {}\n", text)); };
}

// The command that pushes the result of a run as push_to_hub does.
std::string push_command(const PushRequest& request) {
  return fmt::format("qtrain push {} {}{}", shell_word(request.folder.string()), shell_word(request.name.text()),
                     request.is_private == true ? " --private" : "");
}

// Tells the launcher of the ranks that this one goes on alone.
class GoesOnAlone {
 public:
  GoesOnAlone() { send_goes_on_alone(); }
  ~GoesOnAlone() { send_ends_too(); }
  GoesOnAlone(const GoesOnAlone&) = delete;
  GoesOnAlone& operator=(const GoesOnAlone&) = delete;
};

// Pushes what a finished run has written. Returns the error if that fails: the result is complete all the same.
std::optional<Error> push_result(const PushRequest& request, CommandResult& finished, Log& log) {
  const GoesOnAlone alone;
  reopen_stops();
  set_stop_answer("Stopping the push; the result is saved. Press Ctrl-C again to quit now.");
  try {
    throw_if_stopped();  // while the result was being saved
    const CommandResult pushed = push_folder(request, log);
    finished.text += "\n" + pushed.text;
    finished.json["pushed"] = pushed.json;
    return {};
  } catch (const Error& e) {
    ErrorText text = e.text();
    const std::string token = request.token.empty() ? "" : ", with the token in HF_TOKEN";
    if (e.kind() == ErrorKind::stopped)
      text = {.cause = "the push was stopped by a signal", .place = request.name.text()};
    text.remedy += fmt::format("{}the result is complete: {} uploads it{}", text.remedy.empty() ? "" : "; ",
                               push_command(request), token);
    finished.json["pushed"] = {{"error", text.cause}};
    return Error(e.kind(), std::move(text));
  }
}

// The result of a run, with the files it wrote and the commands to try next.
CommandResult finished_result(const Arguments& args, const ResolvedConfig& config, const TrainingResult& result) {
  CommandResult finished{.text = result.summary, .json = result.json};
  if (result.exit_code == 0) {
    const FinishedOutput output{.config = config,
                                .config_file = args.operand(0),
                                .overrides = args.overrides(),
                                .folder = config.value.training.output_dir};
    const std::vector<std::string> next = next_commands(output);
    finished.json["next"] = next;
    finished.text += fmt::format("\nwrote {}\nnext:\n  {}", saved_files(output.folder), fmt::join(next, "\n  "));
  }
  return finished;
}

// Pushes the result if the config asks for that, and says how the run has ended.
void end_run(const Arguments& args, const ResolvedConfig& config, const TrainingResult& result) {
  CommandResult finished = finished_result(args, config, result);
  const auto request = result.exit_code == 0 ? push_of_run(config) : std::nullopt;
  const auto error = request ? push_result(*request, finished, args.log()) : std::nullopt;
  args.log().event(result.exit_code == 0 ? "done" : "stopped", dump_json(finished.json));
  args.give(finished);
  if (error) throw Error(*error);
}

// This process's part of the run.
TrainingResult train_as_rank(const Arguments& args, const ResolvedConfig& config,
                             const std::optional<RankPlace>& place) {
  std::string resume = args.text("resume").value_or(config.value.training.resume_from_checkpoint);
  if (std::getenv(kRestarted)) resume = "auto";
  const Device device = place ? device_of_rank(*place, compute_choice(config.value)) : Device{};
  RankGroup::Options meeting{.timeout = std::chrono::seconds(config.value.run.ddp_timeout), .device = device};
  if (place) {
    meeting.settings = settings_of(*place, config.value, device);
    meeting.say = connection_messages(*place, args.log());
  }
  RankGroup ranks(place, meeting);
  return train({.config = config,
                .resume = resume,
                .ranks = ranks.collective(),
                .gpu = device.index,
                .stop_after = args.integer("stop_after").value_or(0),
                .overwrite = args.has("overwrite")},
               args.log());
}

}  // namespace

int run_train(const Arguments& args) {
  const auto stop_after = args.integer("stop_after");
  if (stop_after && *stop_after < 1)
    fail(ErrorKind::usage, {.cause = "must be the number of an optimizer step, at least 1", .place = "--stop_after"});
  const std::optional<RankPlace> place = rank_place();
  const bool is_fetched = place && place->launcher == "qtrain";  // by the process that started the ranks
  ResolvedConfig config =
      is_fetched ? load_config(args.operand(0), args.overrides()) : load_run_config(args, args.operand(0));
  const RunSection& run = config.value.run;
  if (place) settle_in(*place, config, args.log());
  if (const auto node = node_place(); !place && node) settle_in(*node, config);
  if (!place) settle_ranks(config);
  const bool launches = !place && run.ranks() > 1;
  if (!launches) {
    remark_on_device(config);
    tell_remarks(config, args.log());
  }
  require_supported(config, {.ranks = place ? std::optional(place->size) : std::nullopt});
  if (!place) require_gpus(config.value);
  if (!place || place->launcher != "qtrain") require_kept_inputs(args, config);
  if (const auto request = push_of_run(config);
      request && !is_fetched && run.node_rank == 0 && (!place || place->rank == 0))
    prepare_push_of(*request, args.log());
  if (launches) return launch_run(config.value, args.log());
  if (const auto file = args.text("events"); file && (!place || place->rank == 0))
    args.log().set_events(std::make_unique<EventStream>(*file));
  args.log().show_progress(!config.value.training.disable_tqdm);
  const TrainingResult result = train_as_rank(args, config, place);
  if (!place || place->rank == 0) end_run(args, config, result);
  return result.exit_code;
}

}  // namespace qtrain
