#include "app/reproduction/sealed_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "app/reproduction/logged_rows.h"
#include "config/fields.h"
#include "core/os/file.h"
#include "core/os/paths.h"
#include "core/os/stop.h"
#include "core/plural.h"
#include "core/sha256.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/checkpoint_folders.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/run_identity.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

/// Files that differ from state to state.
constexpr std::array kOfState{kTrainingState, kTrainerState, kTrainResults, "gemm_choices.json"};
constexpr std::string_view kTemplates = "additional_chat_templates/", kCustomGenerate = "custom_generate";

// Whether a finished run left files in the folder, with or without a manifest.
bool has_result(const fs::path& output) {
  std::error_code error;
  for (fs::directory_iterator it(output, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name == kManifest || name == kTrainResults || name == kTrainerState || is_read_by_loaders(name)) return true;
  }
  return false;
}

bool has_key(const Json& json, const char* key) {
  if (json.is_object() && json.contains(key)) return true;
  return json.is_structured() && std::ranges::any_of(json, [&](const Json& part) { return has_key(part, key); });
}

// Whether a loader that may run the code of a model would take that code from this folder. The key may be written with
// escapes; a file that cannot be parsed may mean anything.
bool names_own_code(const fs::path& folder) {
  return std::ranges::any_of(std::array{"config.json", "tokenizer_config.json"}, [&](const char* name) {
    if (!is_plain_file(folder / name)) return false;
    try {
      return has_key(read_json(folder / name, {.duplicate_keys = true}), "auto_map");
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::input) throw;
      return true;
    }
  });
}

// The problem that loaders would read files that are not sealed; empty: there are none.
std::string unsealed_files_problem(const fs::path& folder) {
  const std::vector<std::string> names = sealed_files(folder);
  const std::set<std::string> sealed(names.begin(), names.end());
  std::vector<std::string> others;
  const bool runs_code = names_own_code(folder);
  for (const fs::path& place : {folder, folder / kTemplates, folder / kCustomGenerate}) {
    std::error_code error;
    for (fs::directory_iterator it(place, error), end; !error && it != end; it.increment(error)) {
      const std::string name = it->path().lexically_relative(folder).string();
      if (!sealed.contains(name) && (is_read_by_loaders(name) || (runs_code && name.ends_with(".py"))))
        others.push_back(name);
    }
  }
  std::ranges::sort(others);
  if (others.empty()) return "";
  return fmt::format("{} not among the files that were saved, but a program that loads the model would read {}",
                     fmt::format("{} {}", fmt::join(others, ", "), others.size() == 1 ? "is" : "are"),
                     others.size() == 1 ? "it" : "them");
}

// Whether a document has the form in which this program writes it.
bool has_our_format(const fs::path& file) {
  return read_text(file) == dump_json(read_json(file), 2) + "\n";
}

SealedState sealed_state(const RecordedRun& run, const fs::path& folder) {
  const Beside beside = folder == run.output ? Beside::anything : Beside::notes;
  SealedState s{.step = check_manifest(folder, ManifestCheck::hashes_unless_stopped, beside), .folder = folder};
  if (const std::string others = unsealed_files_problem(folder); !others.empty())
    fail(ErrorKind::input, {.cause = others});
  if (!has_our_format(folder / kManifest))
    fail(ErrorKind::input, {.cause = fmt::format("{} is not formatted as this program writes it", kManifest)});
  if (folder == run.output) return s;
  const fs::path file = folder / kTrainingState;
  s.state = read_json(file);
  require_identity(s.state->is_object() ? s.state->value("identity", Json::object()) : Json::object(), file.string());
  return s;
}

// Checks the config of the run that wrote the result in the folder; a run that went on since then has another config.
void check_config(const RecordedRun& run, const std::vector<SealedState>& states, Verification& v) {
  if (!has_our_format(run.output / kResolvedConfig))
    v.add(kResolvedConfig, "is not formatted as this program writes it");
  const auto result = std::ranges::find(states, run.output, &SealedState::folder);
  if (result == states.end()) return;
  v.resumed_later = states.back().step > result->step;
  if (v.resumed_later) return;
  const Json digest = read_json(run.output / kTrainResults).value(kConfigDigest, Json());
  const bool same = digest == sha256_of_file(run.output / kResolvedConfig);
  v.add(kResolvedConfig, same ? "" : "it was changed after the result was saved");
}

// All states must come from one run. Keys that may change when a run is resumed are not compared.
void check_identities(const std::vector<SealedState>& states, Verification& v) {
  const SealedState* first = nullptr;
  for (const SealedState& s : states) {
    if (!s.state) continue;
    if (!first) first = &s;
    if (const RunChanges changes = run_changes(first->identity(), s.identity()); !changes.refused.empty())
      v.add(s.folder.filename(), fmt::format("its config does not match that of {}: {}",
                                             first->folder.filename().string(), fmt::join(changes.refused, "; ")));
  }
}

void note_earlier_values(const RecordedRun& run, const std::vector<SealedState>& states, Verification& v) {
  for (const SealedState& s : states) {
    if (!s.state) continue;
    EarlierValues earlier{.until = s.step,
                          .values = keys_at_checkpoint(run, s.identity()),
                          .ranks = ranks_at_checkpoint(run, s.identity())};
    if (!earlier.values.empty() || earlier.ranks != run.ranks) v.earlier.push_back(std::move(earlier));
  }
}

// A checkpoint from the step of the result was written by the last start, unless that was to go on. So its config must
// be resolved_config.json.
void check_last_config(const RecordedRun& run, const std::vector<SealedState>& states, Verification& v) {
  if (states.size() < 2 || states.back().folder != run.output) return;
  const SealedState& last = states[states.size() - 2];
  if (!last.state || last.step != states.back().step || is_of_longer_run(last)) return;
  const Json others = keys_at_checkpoint(run, last.identity());
  std::vector<std::string> names;
  for (const auto& [key, was] : others.items())
    names.push_back(fmt::format("{} is {} in the former and {} in the latter", key, dump_json(run.values[key]["value"]),
                                dump_json(was)));
  if (!names.empty())
    v.add(fmt::format("{} and {} of {}", kResolvedConfig, kTrainingState, last.folder.filename().string()),
          fmt::format("{}", fmt::join(names, "; ")));
}

// Whether the run could have saved a checkpoint of this name before it saved the state.
bool is_name_of_checkpoint(const std::string& name, const SealedState& state) {
  const std::int64_t step = step_of_checkpoint(name);
  return name == fmt::format("checkpoint-{}", step) && step >= 0 && step <= state.step;
}

// With load_best_model_at_end, the result has the weights of the best checkpoint. So that has to be a checkpoint of
// this run rather than another folder, whose steps could not be repeated, and its loss must have been logged.
std::string best_problem(const SealedState& s) {
  const Json logged = read_json(s.folder / kTrainerState);
  const Json checkpoint = logged.value("best_model_checkpoint", Json()), metric = logged.value("best_metric", Json()),
             step = logged.value("best_global_step", Json());
  if (checkpoint.is_string() && !is_name_of_checkpoint(fs::path(checkpoint.get<std::string>()).filename(), s))
    return fmt::format("{} is not a checkpoint of this run", dump_json(checkpoint));
  if (!metric.is_null() && !is_logged_loss(logged.value("log_history", Json()), metric, step))
    return fmt::format("best_metric is {}, which was not logged{}", dump_json(metric),
                       step.is_null() ? "" : " for step " + dump_json(step));
  if (!s.state) return "";
  const Json saved = s.state->value("best_checkpoint", Json());
  if (saved != (checkpoint.is_null() ? Json("") : checkpoint) || s.state->value("best_metric", Json()) != metric)
    return fmt::format("the best checkpoint is {} here, but {} in {}", dump_json(checkpoint), dump_json(saved),
                       kTrainingState);
  return "";
}

void check_best(const RecordedRun& run, const std::vector<SealedState>& states, Verification& v) {
  for (const SealedState& s : states)
    if (const std::string problem = best_problem(s); !problem.empty())
      v.add(fmt::format("{} of {}", kTrainerState, name_of(run, s.folder)), problem);
}

bool is_of_state(const std::string& name) {
  return name.ends_with(".safetensors") || std::ranges::find(kOfState, name) != kOfState.end();
}

// Whether two checkpoints were made with the same config, so that they differ only in the weights of the model.
bool same_config(const Json& a, const Json& b) {
  return a.at("keys") == b.at("keys") && a.at("model") == b.at("model") && a.at("text") == b.at("text");
}

// Tokenizer, chat template and config files must be the same in all states of one config.
void check_companions(const RecordedRun& run, const std::vector<SealedState>& states, Verification& v) {
  const SealedState* before = nullptr;
  for (const SealedState& s : states) {
    if (!s.state && (!before || !keys_at_checkpoint(run, before->identity()).empty())) continue;
    if (before && (!s.state || same_config(before->identity(), s.identity())))
      for (const std::string& name : sealed_files(s.folder)) {
        if (is_of_state(name) || !path_exists(before->folder / name)) continue;
        if (sha256_of_file(before->folder / name) == sha256_of_file(s.folder / name)) continue;
        v.add(fmt::format("{} of {} and of {}", name, name_of(run, before->folder), name_of(run, s.folder)),
              "the same run saved both, but their contents differ");
      }
    if (s.state) before = &s;
  }
}

}  // namespace

bool is_of_longer_run(const SealedState& state) {
  if (!state.state) return false;
  const Json saved = read_json(state.folder / kTrainerState), last = saved.value("max_steps", Json());
  return last.is_number_integer() && last > state.step &&
         !shows_early_end(saved.value("stateful_callbacks", Json::object()));
}

std::string words_of(const ErrorText& text) {
  return text.place.empty() ? text.cause : fmt::format("{}: {}", text.place, text.cause);
}

std::string name_of(const RecordedRun& run, const fs::path& folder) {
  return folder == run.output ? "the result" : folder.filename().string();
}

// The names that transformers, PEFT, sentence-transformers, vLLM and similar programs look for. Case is ignored, as
// some file systems do.
bool is_read_by_loaders(const fs::path& path) {
  std::string name = path.filename().string();
  std::ranges::transform(name, name.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
  const auto is = [&](auto... names) { return ((name == names) || ...); };
  const auto ends = [&](auto... endings) { return (name.ends_with(endings) || ...); };
  if (ends(".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".pt", ".pth", ".jinja")) return true;
  if (ends(".ckpt", ".ckpt.index", ".h5", ".msgpack", ".onnx", ".npz", ".ot")) return true;
  if (ends(".model", ".tiktoken", ".spm", ".codes")) return true;
  if (is("config.json", "generation_config.json", "adapter_config.json", "chat_template.json", "merges.txt"))
    return true;
  if (is("configuration.json", "params.json", "tekken.json", "modules.json", "config_sentence_transformers.json"))
    return true;
  if (ends("processor_config.json", "quantize_config.json", "quant_config.json", "quantization_config.json"))
    return true;
  if (is("sentence_bert_config.json", "normalizer.json")) return true;
  if (name.starts_with("vocab") && ends(".json", ".txt", ".bpe", ".tsv")) return true;
  if (path.parent_path().filename() == kCustomGenerate && ends(".py")) return true;
  return name.starts_with("tokenizer.model") || (name.find("token") != std::string::npos && ends(".json"));
}

std::vector<SealedState> sealed_states(const RecordedRun& run, Verification& v) {
  std::vector<fs::path> folders = find_checkpoints(run.output);
  if (has_result(run.output)) folders.push_back(run.output);
  std::vector<SealedState> states;
  for (const fs::path& folder : folders) {
    const std::string about = "files of " + name_of(run, folder);
    try {
      states.push_back(sealed_state(run, folder));
      v.add(about);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::input) throw;
      v.add(about, words_of(e.text()));
    }
    throw_if_stopped();
  }
  for (const fs::path& folder : unsealed_checkpoints(run.output))
    v.add("files of " + folder.filename().string(), "it has no manifest.json, so it was not saved completely");
  if (folders.empty()) v.add("the result", "there is neither a checkpoint nor a result with a manifest.json");
  std::ranges::stable_sort(states, {}, &SealedState::step);  // checkpoints came before the result
  return states;
}

void check_agreement(const RecordedRun& run, const std::vector<SealedState>& states, Verification& v) {
  check_config(run, states, v);
  check_identities(states, v);
  check_last_config(run, states, v);
  note_earlier_values(run, states, v);
  check_companions(run, states, v);
  check_best(run, states, v);
  check_logged_rows(run, states, v);
}

Json keys_at_checkpoint(const RecordedRun& run, const Json& identity) {
  constexpr std::array kRanks{"nproc", "nnodes"};
  const Json &keys = identity.at("keys"), none;
  const bool quantized = keys.value("load_in_4bit", none) == true || keys.value("load_in_8bit", none) == true;
  Json others = Json::object();
  for (const auto& [key, value] : keys.items()) {
    const OnResume kind = on_resume(key);
    const bool refused =
        kind == OnResume::refused && key != "gradient_accumulation_steps" && key != "context_parallel_size";
    if (refused || kind == OnResume::silent || std::ranges::find(kRanks, key) != kRanks.end()) continue;
    // Checkpoints record the defaults of keys without effect.
    if ((key == "bnb_4bit_compute_dtype" && !quantized) || key == "eval_split") continue;
    const auto now = run.values.find(key);
    if (now != run.values.end() && (*now)["value"] != value) others[key] = value;
  }
  return others;
}

int ranks_at_checkpoint(const RecordedRun& run, const Json& identity) {
  const Json ranks = identity.at("keys").value("nproc", Json());
  return ranks.is_number_integer() && ranks > 0 ? ranks.get<int>() : run.ranks;
}

}  // namespace qtrain
