#include "app/reproduction/redone_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "app/reproduction/logged_rows.h"
#include "core/os/file.h"
#include "core/os/paths.h"
#include "core/sha256.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/manifest.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

/// A sealed document, and the same one after repeating the steps.
struct Documents {
  Json sealed, again;
};

// Keeps only the name of a checkpoint: its path includes the output directory, which may differ.
void keep_file_name(Json& document, const char* key) {
  if (const auto found = document.find(key); found != document.end() && found->is_string())
    *found = fs::path(found->get<std::string>()).filename().string();
}

// The count of evaluations that were no improvement, which follows from the rows.
void leave_out_count(Json& document) {
  const Json::json_pointer attributes("/stateful_callbacks/EarlyStoppingCallback/attributes");
  if (document.contains(attributes) && document[attributes].is_object())
    document[attributes].erase("early_stopping_patience_counter");
}

// If the run was stopped before a due evaluation, the sealed document does not have its row yet.
void leave_out_pending(Documents& d, const Json& sealed_step) {
  for (Json* document : {&d.sealed, &d.again}) leave_out_count(*document);
  Json& rows = d.again["log_history"];
  if (!rows.is_array()) return;
  std::erase_if(rows.get_ref<Json::array_t&>(),
                [&](const Json& row) { return row.contains("eval_loss") && row.value("step", Json()) == sealed_step; });
}

/// The keys of the best step, its metric and its checkpoint in a document.
struct BestKeys {
  const char *step, *metric, *checkpoint;
};

// Whether an evaluation at `step`, but not at `last`, gave `metric` when the steps were repeated.
bool was_evaluated(const RedoneState& state, const Json& step, const Json& metric, const Json& last) {
  const Json rows = read_json(state.again / kTrainerState).value("log_history", Json::array());
  return std::ranges::any_of(rows, [&](const Json& row) {
    return row.value("step", Json()) == step && step != last && row.value("eval_loss", Json()) == metric;
  });
}

// If the pending evaluation turned out to be the best, the repeated document no longer shows which one was best before
// it. The sealed one must then name either none or one of the earlier evaluations.
void compare_best(const RedoneState& state, Documents& d, const BestKeys& keys, const Json& last) {
  const Json step = d.sealed.value(keys.step, Json()), metric = d.sealed.value(keys.metric, Json());
  const Json checkpoint = d.sealed.value(keys.checkpoint, Json());
  if (d.again.value(keys.step, Json()) != last) return;
  const bool is_none = metric.is_null() && (checkpoint.is_null() || checkpoint == "");
  const bool is_one =
      was_evaluated(state, step, metric, last) && checkpoint == fmt::format("checkpoint-{}", step.get<std::int64_t>());
  if (!is_none && !is_one) return;
  for (Json* document : {&d.sealed, &d.again})
    for (const char* key : {keys.step, keys.metric, keys.checkpoint}) document->erase(key);
}

void prepare_trainer_state(const RedoneState& state, Documents& d) {
  for (Json* document : {&d.sealed, &d.again}) {
    keep_file_name(*document, "best_model_checkpoint");
    *document = without_amounts(std::move(*document));
  }
  if (!state.is_pending) return;
  const Json last = d.sealed.value("global_step", Json());
  leave_out_pending(d, last);
  compare_best(state, d, {"best_global_step", "best_metric", "best_model_checkpoint"}, last);
}

void prepare_training_state(const RedoneState& state, Documents& d) {
  for (Json* document : {&d.sealed, &d.again}) keep_file_name(*document, "best_checkpoint");
  d.again = with_former_names(std::move(d.again), state.renames);
  const Json::json_pointer group("/identity/keys/zero_group_size");
  // One group per machine: the repeated run has all ranks on one machine, so it names the size of the groups instead.
  if (d.sealed.contains(group) && d.sealed[group] == -1 && d.again.contains(group)) d.again[group] = -1;
  if (!state.is_pending) return;
  d.again["events_pending"] = true;
  compare_best(state, d, {"best_step", "best_metric", "best_checkpoint"}, d.sealed.value("step", Json()));
}

// Repeating only the last steps may not replay any CUDA graph, and then the results do not mention graphs.
void prepare_results(const RedoneState&, Documents& d) {
  const char* graphs = "cuda_graphs";
  const Json amounts{{graphs, {{"kept", 1}, {"replays", 1}}}}, form = without_amounts(amounts);
  for (Json* document : {&d.sealed, &d.again}) {
    *document = without_amounts(std::move(*document));
    if (document->value(graphs, Json()) == form[graphs]) document->erase(graphs);
  }
}

void prepare_adapter_config(const RedoneState& state, Documents& d) {
  d.again = with_former_names(std::move(d.again), state.renames);
}

using Prepare = void (*)(const RedoneState& state, Documents& documents);
const std::map<std::string, Prepare>& documents() {
  static const std::map<std::string, Prepare> kDocuments{{"trainer_state.json", prepare_trainer_state},
                                                         {kTrainingState, prepare_training_state},
                                                         {"train_results.json", prepare_results},
                                                         {"adapter_config.json", prepare_adapter_config}};
  return kDocuments;
}

std::string document_difference(const RedoneState& state, const std::string& name, const std::string& sealed) {
  Documents d{.sealed = parse_json(sealed, (state.sealed / name).string()), .again = read_json(state.again / name)};
  if (sealed != dump_json(d.sealed, 2) + "\n") return "is not formatted as this program writes it";
  if (!d.sealed.is_object()) return "is not a JSON object";
  documents().at(name)(state, d);
  return first_difference(d.sealed, d.again);
}

// Reads a document only once, so that the hash belongs to the compared bytes even if the file changes meanwhile.
std::string file_difference(const RedoneState& state, const std::string& name, std::string& sha256) {
  const bool is_document = documents().contains(name);
  const std::string text = is_document ? read_text(state.sealed / name) : "";
  sha256 = is_document ? sha256_of(text) : sha256_of_file(state.sealed / name);
  if (sha256 == sha256_of_file(state.again / name)) return "";
  return is_document ? document_difference(state, name, text) : "has different contents";
}

// Compares the manifests, apart from hashes and sizes.
std::string manifest_difference(const RedoneState& state) {
  Documents d{.sealed = read_json(state.sealed / kManifest), .again = read_json(state.again / kManifest)};
  for (Json* document : {&d.sealed, &d.again}) {
    document->erase("sha256");
    Json invented = Json::object();
    for (auto& [name, file] : (*document)["files"].items()) {
      for (const char* key : {"size", "sha256"}) file.erase(key);
      if (!file.empty()) invented[name] = file;
    }
    (*document)["files"] = std::move(invented);
  }
  return first_difference(d.sealed, d.again);
}

std::string joined(const std::string& path, const std::string& key) {
  return path.empty() ? key : path + "." + key;
}

// The operator == alone would take 4 and 4.0, or 0.0 and -0.0, for equal.
bool is_written_alike(const Json& a, const Json& b) {
  return a == b && dump_json(a) == dump_json(b);
}

struct Difference {
  std::string path;
  const Json *sealed, *again;
};

// A missing element counts as null, so that lengths are compared, too.
std::optional<Difference> find_difference(const Json& sealed, const Json& again, const std::string& path) {
  static const Json kNothing;
  if (is_written_alike(sealed, again)) return {};
  if (sealed.is_object() && again.is_object()) {
    for (const auto& [key, value] : sealed.items()) {
      const auto other = again.find(key);
      if (other == again.end()) return Difference{joined(path, key), &value, &kNothing};
      if (auto found = find_difference(value, *other, joined(path, key))) return found;
    }
    for (const auto& [key, value] : again.items())
      if (!sealed.contains(key)) return Difference{joined(path, key), &kNothing, &value};
    return Difference{joined(path, "the order of keys"), &sealed, &again};
  }
  if (sealed.is_array() && again.is_array())
    for (std::size_t i = 0; i < std::max(sealed.size(), again.size()); ++i) {
      const Json &a = i < sealed.size() ? sealed[i] : kNothing, &b = i < again.size() ? again[i] : kNothing;
      if (auto found = find_difference(a, b, fmt::format("{}[{}]", path, i))) return found;
    }
  return Difference{path, &sealed, &again};
}

std::string shortened(const Json& value) {
  constexpr std::size_t kMaxLength = 120;
  const std::string text = dump_json(value);
  return text.size() <= kMaxLength ? text : text.substr(0, text.find_last_of(' ', kMaxLength)) + " ...";
}

}  // namespace

std::string first_difference(const Json& sealed, const Json& again) {
  const auto found = find_difference(sealed, again, "");
  return found ? fmt::format("{}: {} was sealed, but repeating the steps gives {}", found->path,
                             shortened(*found->sealed), shortened(*found->again))
               : "";
}

ComparedState compare(const RedoneState& state) {
  const std::vector<std::string> sealed = sealed_files(state.sealed), again = sealed_files(state.again);
  ComparedState found;
  const auto add = [&](const std::string& name, const std::string& problem) {
    if (!problem.empty())
      found.differences.push_back(name + (problem.find(": ") == std::string::npos ? " " : ", ") + problem);
  };
  add(kManifest, manifest_difference(state));
  for (const std::string& name : sealed)
    if (std::ranges::find(again, name) == again.end())
      add(name, "was sealed, but repeating the steps does not write such a file");
    else
      add(name, file_difference(state, name, found.sha256[name]));
  for (const std::string& name : again)
    if (std::ranges::find(sealed, name) == sealed.end()) add(name, "is missing from the sealed files");
  return found;
}

}  // namespace qtrain
