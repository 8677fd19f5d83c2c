#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string_view>

#include "app/commands/commands.h"
#include "app/next_commands.h"
#include "core/error.h"
#include "core/utf8.h"
#include "dist/rank_secret.h"

namespace qtrain {

/// The files of app/launch_scripts by name without extension.
const std::map<std::string_view, std::string_view>& launch_script_templates();

namespace {

namespace fs = std::filesystem;

/// The run that a script starts.
struct ScriptedRun {
  std::string name;     ///< job name, made from the output directory's
  std::string command;  ///< qtrain with the config and its overrides
  std::string folder;   ///< working directory, which relative paths refer to
  std::int64_t nodes, ranks;
  bool cuda;
};

std::string quoted(const std::string& word) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,@%+";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

// Job name that every scheduler accepts: a letter followed by lower-case letters, digits and dashes (RFC 1035).
std::string job_name(const std::string& output) {
  std::string name;
  for (const char c : (fs::path(output) / "").lexically_normal().parent_path().filename().string())
    name += std::isalnum(static_cast<unsigned char>(c)) ? static_cast<char>(std::tolower(c)) : '-';
  const std::size_t begin = name.find_first_not_of("-0123456789");
  if (begin == std::string::npos) return "qtrain";
  constexpr std::size_t kLongest = 50;
  name = name.substr(begin, kLongest);
  return name.substr(0, name.find_last_not_of('-') + 1);
}

ScriptedRun scripted_run(const Arguments& args) {
  const ResolvedConfig config = load_config(args.operand(0), args.overrides());
  const RunSection& run = config.value.run;
  ScriptedRun s{.name = job_name(config.value.training.output_dir),
                .command = "qtrain " + quoted(args.operand(0)),
                .folder = fs::current_path().string(),
                .nodes = run.nnodes,
                .ranks = run.nproc,
                .cuda = run.device != DeviceChoice::cpu};
  for (const auto& [key, value] : args.overrides()) s.command += " " + quoted(shown_override(key, value));
  return s;
}

using Values = std::map<std::string, std::string>;

// Fills in a template: replaces @name@ by its value. What a value contains is left alone.
std::string filled(std::string_view name, const Values& values) {
  std::string_view rest = launch_script_templates().at(name);
  std::string text;
  for (std::size_t at; (at = rest.find('@')) != std::string_view::npos;) {
    const std::size_t end = std::min(rest.find('@', at + 1), rest.size());
    const auto value = values.find(std::string(rest.substr(at + 1, end - at - 1)));
    text += rest.substr(0, at);
    text += value == values.end() ? "@" : value->second;
    rest.remove_prefix(value == values.end() ? at + 1 : end + 1);
  }
  return text.append(rest);
}

// Slurm starts each rank by itself.
std::string slurm_script(const ScriptedRun& s) {
  return filled("slurm", {{"name", s.name},
                          {"nodes", std::to_string(s.nodes)},
                          {"ranks", std::to_string(s.ranks)},
                          {"gpus", s.cuda ? fmt::format("#SBATCH --gpus-per-node={}\n", s.ranks) : ""},
                          {"folder", quoted(s.folder)},
                          {"command", s.command}});
}

// A string of YAML, which has no other characters than those of Unicode.
std::string yaml_text(const std::string& text) {
  if (!is_valid_utf8(text))
    fail(ErrorKind::usage, {.cause = "a Kubernetes manifest cannot contain text that is not valid UTF-8",
                            .place = one_line(text),
                            .remedy = "rename the folder or file"});
  return Json(text).dump();
}

// Kubernetes itself expands $(NAME) in a command and takes $$ for $.
std::string kubernetes_command(const std::string& command) {
  std::string text = "exec ";
  for (const char c : command) text += c == '$' ? std::string("$$") : std::string(1, c);
  return text;
}

// One pod per machine, which starts the ranks there.
std::string kubernetes_manifest(const ScriptedRun& s) {
  const bool needs_secret = s.nodes > 1;  // ranks in several pods have to authenticate
  const std::string secret =
      needs_secret ? filled("kubernetes_secret", {{"name", s.name}, {"text", RankSecret::random().text()}}) : "";
  std::string text = filled("kubernetes", {{"name", s.name}, {"secret", secret}});
  const std::string environment = fmt::format(
      "              env:\n                - {{name: {}, valueFrom: {{secretKeyRef: {{name: {}-ranks, key: "
      "secret}}}}}}\n",
      kSecretVariable, s.name);
  const std::string limits = "              resources:\n                limits: {nvidia.com/gpu: ";
  const auto add = [&](const char* kind, std::int64_t replicas) {
    text += filled("kubernetes_pod", {{"kind", kind},
                                      {"replicas", std::to_string(replicas)},
                                      {"name", s.name},
                                      {"folder", yaml_text(s.folder)},
                                      {"environment", needs_secret ? environment : ""},
                                      {"command", yaml_text(kubernetes_command(s.command))},
                                      {"limits", s.cuda ? fmt::format("{}{}}}\n", limits, s.ranks) : ""}});
  };
  add("Master", 1);
  if (s.nodes > 1) add("Worker", s.nodes - 1);
  return text;
}

std::string docker_script(const ScriptedRun& s) {
  return filled("docker",
                {{"gpus", s.cuda ? "--gpus all " : ""}, {"folder", quoted(s.folder)}, {"command", s.command}});
}

}  // namespace

/// `qtrain launch-script`: prints the file that starts the run under a scheduler.
int run_launch_script(const Arguments& args) {
  if (args.has("slurm") + args.has("k8s") + args.has("docker") != 1)
    fail(ErrorKind::usage, {.cause = "launch-script needs exactly one of --slurm, --k8s and --docker"});
  const ScriptedRun run = scripted_run(args);
  const std::string script = args.has("slurm") ? slurm_script(run)
                             : args.has("k8s") ? kubernetes_manifest(run)
                                               : docker_script(run);
  args.give({.text = script, .json = {{"script", script}}, .what = ResultText::data});
  return 0;
}

}  // namespace qtrain
