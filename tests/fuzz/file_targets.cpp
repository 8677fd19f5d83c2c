#include "tests/fuzz/file_targets.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "app/answers.h"
#include "app/reproduction/recorded_run.h"
#include "app/reproduction/verification.h"
#include "config/config.h"
#include "convert/inspect.h"
#include "core/formats/json.h"
#include "core/formats/safetensors.h"
#include "core/hash.h"
#include "core/os/file.h"
#include "core/parallel.h"
#include "data/source/files.h"
#include "data/source/raw_rows.h"
#include "data/token_cache.h"
#include "data/token_file.h"
#include "kernels/gemm_choices.h"
#include "model/lora.h"
#include "monitor/run_rows.h"
#include "plan/step_trace.h"
#include "report/report_page.h"
#include "report/run_record.h"
#include "tests/core/temp_folder.h"
#include "text/template/load.h"
#include "text/tokenizer/load.h"
#include "text/tokenizer/tokenizer.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/foreign_results.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/run_identity.h"
#include "train/checkpoint/run_state.h"
#include "train/setup/named_tokens.h"
#include "train/setup/sample_prompts.h"

namespace qtrain::fuzz {
namespace {

namespace fs = std::filesystem;

const fs::path kSource = QTRAIN_SOURCE_DIR;
const fs::path kGoodRun = kSource / "tests/fuzz/goldens/run";
const fs::path kGoodText = kSource / "tests/data/golden/chatml";
constexpr std::string_view kCheckpoint = "checkpoint-4";

/// A folder with copies of valid files, one of which has other bytes.
class Folder {
 public:
  Folder() = default;
  explicit Folder(const fs::path& good) { fs::copy(good, folder_.path(), fs::copy_options::recursive); }

  fs::path put(const fs::path& name, std::string_view bytes) const {
    std::ofstream(folder_ / name, std::ios::binary | std::ios::trunc) << bytes;  // does not wait for the disk
    return folder_ / name;
  }
  fs::path copy(const fs::path& good) const {
    fs::copy_file(good, folder_ / good.filename());
    return folder_ / good.filename();
  }
  const fs::path& path() const { return folder_.path(); }

 private:
  qtrain::testing::TempFolder folder_;
};

Log& silent_log() {
  static Log log(LogLevel::silent);
  return log;
}

/// Reads a part that may be refused although other parts can be read.
template <class Read>
void attempt(const Read& read) {
  try {
    read();
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::input && e.kind() != ErrorKind::usage) throw;
  }
}

// Rows

void every_row(const fs::path& file) {
  const RowSourcePtr rows = open_rows(file);
  for (std::int64_t i = 0; i < rows->size(); ++i) check(rows->parse(i).is_object(), "a row is not an object");
}

template <const char* Name>
void rows_of(std::string_view bytes) {
  const Folder folder;
  every_row(folder.put(Name, bytes));
}
constexpr char kGzipName[] = "rows.jsonl.gz", kZstandardName[] = "rows.jsonl.zst", kTabsName[] = "rows.tsv",
               kTextName[] = "rows.txt", kListName[] = "rows.json";

/// The files that Dataset.save_to_disk writes next to its Arrow files.
void saved_rows(std::string_view bytes) {
  const Folder folder;
  folder.copy(kSource / "tests/data/golden/sources/saved/data-00000-of-00002.arrow");
  folder.copy(kSource / "tests/data/golden/sources/saved/dataset_info.json");
  folder.put("state.json", bytes);
  for (const fs::path& file : resolve_data_files({folder.path().string()}, Split::train)) {
    check(file.lexically_normal().parent_path() == folder.path(), "a file outside of the folder");
    attempt([&] { every_row(file); });
  }
}

void saved_splits(std::string_view bytes) {
  const Folder folder(kSource / "tests/data/golden/sources/parts");
  folder.put("dataset_dict.json", bytes);
  resolve_data_files({folder.path().string()}, Split::train);
}

void token_rows(std::string_view bytes) {
  const Folder folder;
  constexpr Digest kKey{0x1d90b612d4f4d93c, 0x988c9b250a50528c};  // the key of the valid file
  const std::optional<Dataset> rows = open_token_file(folder.put("rows.tokens", bytes), kKey);
  for (std::int64_t i = 0; rows && i < rows->size(); ++i)
    check(!rows->row(i).input_ids.empty(), "a row without tokens");
}

/// What the cache has recorded about a file; no content may end a run.
void token_digest(std::string_view bytes) {
  const Folder folder;
  static ThreadPool pool(1);
  TokenCache cache({.folder = folder.path() / "cache", .limit = 1 << 20});
  const fs::path file = folder.put("rows.jsonl", "{}\n");
  const Digest digest = cache.digest_of_file(file, pool);
  folder.put("cache/files/" + digest_of(file.string()).hex() + ".json", bytes);
  check(cache.digest_of_file(file, pool) == digest, "another file's digest");
}

void prompts(std::string_view bytes) {
  const Folder folder;
  Config config;
  config.model.model_name_or_path = folder.path().string();
  for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"})
    if (fs::exists(kGoodText / name)) folder.copy(kGoodText / name);
  if (!fs::exists(folder.path() / "config.json")) folder.put("config.json", "{}");
  config.training.sample_prompts = {folder.put("prompts.jsonl", bytes).string()};
  ModelConfig model;
  model.max_position_embeddings = 1 << 20;
  load_sample_prompts(config, model);
}

// Files of a model

void text_of(const fs::path& folder) {
  const auto tokenizer = load_tokenizer(folder);
  tokenizer->decode(tokenizer->encode("Hello  w\xC3\xB6rld, 12345 <s> <x>"));
  chat_template_sources(folder);
  special_tokens(folder);
  attempt([&] { load_chat_template(folder); });
  attempt([&] { write_named_tokens({{"eos_token", "<|im_end|>"}}, *tokenizer, folder); });
}

template <const char* Name>
void text_with(std::string_view bytes) {
  const Folder folder(kGoodText);
  folder.put(Name, bytes);
  text_of(folder.path());
}
constexpr char kTokenizerConfigName[] = "tokenizer_config.json", kSpecialTokensName[] = "special_tokens_map.json",
               kAddedTokensName[] = "added_tokens.json";

void sentencepiece_tokenizer(std::string_view bytes) {
  const Folder folder;
  folder.put("tokenizer.model", bytes);
  const auto tokenizer = load_tokenizer(folder.path());
  tokenizer->decode(tokenizer->encode("Hello  w\xC3\xB6rld, 12345 <s>"));
}

void adapter_config(std::string_view bytes) {
  const Folder folder;
  folder.put("adapter_config.json", bytes);
  lora_config_json(load_lora_config(folder.path()));
}

void generation_config(std::string_view bytes) {
  const Folder folder;
  load_generation_defaults(folder.put("generation_config.json", bytes));
}

void safetensors_index(std::string_view bytes) {
  const Folder folder(kSource / "tests/core/goldens/sharded");
  const fs::path index = folder.put("model.safetensors.index.json", bytes);
  for (const fs::path& file : safetensors_files(index))
    check(file.lexically_normal().parent_path() == folder.path(), "a shard outside of the folder");
  SafetensorsReader reader(index);
}

void deepspeed_config(std::string_view bytes) {
  const Folder folder;
  folder.put("deepspeed.json", bytes);
  resolved_json(load_config(folder.put("run.json", R"({"model_name_or_path": "m", "deepspeed": "deepspeed.json"})")));
}

/// LLaMA-Factory's dataset_info.json.
void dataset_registry(std::string_view bytes) {
  const Folder folder;
  folder.put("dataset_info.json", bytes);
  resolved_json(load_config(folder.put(
      "run.json",
      fmt::format(R"({{"stage": "sft", "finetuning_type": "lora", "dataset": "alpaca", "dataset_dir": "{}"}})",
                  folder.path().string()))));
}

// Files of a run

/// Reads everything in an output directory that is read without training.
void read_all_of(const fs::path& output) {
  const RunRecord run = read_run(output);
  report_page({run});
  differences({run, run});
  attempt([&] { inspect_text(inspect_path(output)); });
  attempt([&] { has_foreign_weights(output); });
  monitor::RunRows rows(output);
  rows.update();
  attempt([&] { recorded_document(read_recorded_run(output), {.output = output / "again"}); });
  attempt([&] { verify_run(read_recorded_run(output), {.steps = 0, .scratch = output, .log = silent_log()}); });
}

template <const char* Name>
void run_with(std::string_view bytes) {
  const Folder folder(kGoodRun);
  folder.put(Name, bytes);
  read_all_of(folder.path());
}
constexpr char kMetricsName[] = "metrics.jsonl", kConfigName[] = "resolved_config.json",
               kResultsName[] = "train_results.json", kHistoryName[] = "trainer_state.json",
               kMessagesName[] = "messages.jsonl", kSamplesName[] = "samples.jsonl";

void result_mark(std::string_view bytes) {
  const Folder folder(kGoodRun);
  folder.put(kResultMark, bytes);
  result_writer(folder.path());
  is_free_for("qtrain merge", folder.path());
}

void manifest(std::string_view bytes) {
  const Folder folder(kGoodRun);
  folder.put(fs::path(kCheckpoint) / kManifest, bytes);
  const fs::path checkpoint = folder.path() / kCheckpoint;
  manifest_step(checkpoint);
  attempt([&] { sealed_files(checkpoint); });
  attempt([&] { check_file(checkpoint, "trainer_state.json"); });
  attempt([&] { check_moving(checkpoint, folder.path()); });
  attempt([&] {
    verify_run(read_recorded_run(folder.path()), {.steps = 0, .scratch = folder.path(), .log = silent_log()});
  });
  check_manifest(checkpoint, ManifestCheck::hashes);
}

/// A file of a checkpoint, with a regenerated manifest: it protects from accidents, but not from intent.
void checkpoint_with(const fs::path& name, std::string_view bytes) {
  const Folder folder(kGoodRun);
  folder.put(fs::path(kCheckpoint) / name, bytes);
  const fs::path checkpoint = folder.path() / kCheckpoint;
  write_manifest(checkpoint, 4);
  attempt([&] { saved_template_date({checkpoint}); });
  attempt([&] { inspect_text(inspect_path(checkpoint)); });
  verify_run(read_recorded_run(folder.path()), {.steps = 0, .scratch = folder.path(), .log = silent_log()});
}

void training_state(std::string_view bytes) {
  checkpoint_with("training_state.json", bytes);
  const Json json = parse_json(bytes, "fuzz.json");
  RunState::from_json(json, "fuzz.json");
  if (!json.contains("identity")) return;
  require_identity(json["identity"], "fuzz.json");
  static const Json good = read_json(kGoodRun / kCheckpoint / "training_state.json");
  run_changes(json["identity"], good["identity"]);
}

void trainer_state(std::string_view bytes) {
  checkpoint_with("trainer_state.json", bytes);
}

void step_trace(std::string_view bytes) {
  const Folder folder;
  for (int rank = 0; rank < 2; ++rank) folder.put(fmt::format("trace-rank-{}.json", rank), bytes);
  check(StepTrace::read(folder.path()).ranks() == 2, "another number of ranks");
}

void gemm_choice_file(std::string_view bytes) {
  GemmChoices choices("a GPU", {});
  choices.restore(parse_json(bytes, "fuzz.json"), "fuzz.json");
  check(choices.used().is_object(), "choices are no object");
}

}  // namespace

std::vector<Target> file_targets() {
  const std::string here = "tests/fuzz/goldens/", run = here + "run/", rows = "tests/data/golden/sources/";
  return {
      {"gzip", rows_of<kGzipName>, {here + "rows.jsonl.gz"}},
      {"zstd", rows_of<kZstandardName>, {here + "rows.jsonl.zst"}},
      {"tsv", rows_of<kTabsName>, {rows + "tabs.tsv"}},
      {"text_rows", rows_of<kTextName>, {"README.md"}},
      {"json_rows", rows_of<kListName>, {rows + "rows.json"}},
      {"saved_rows", saved_rows, {rows + "saved/state.json"}},
      {"saved_splits", saved_splits, {rows + "parts/dataset_dict.json"}},
      {"token_rows", token_rows, {here + "rows.tokens"}},
      {"token_digest", token_digest, {here + "digest.json"}},
      {"prompts", prompts, {here + "prompts.jsonl"}},
      {"tokenizer_config", text_with<kTokenizerConfigName>, {"tests/data/golden/chatml/tokenizer_config.json"}},
      {"special_tokens_map", text_with<kSpecialTokensName>, {here + "special_tokens_map.json"}},
      {"added_tokens", text_with<kAddedTokensName>, {here + "added_tokens.json"}},
      {"sentencepiece_tokenizer", sentencepiece_tokenizer, {"tests/convert/goldens/gguf/spm.model"}},
      {"adapter_config",
       adapter_config,
       {"tests/golden/data/lora_qwen3_patterns/adapter/adapter_config.json", run + "adapter_config.json"}},
      {"generation_config", generation_config, {here + "generation_config.json"}},
      {"safetensors_index", safetensors_index, {"tests/core/goldens/sharded/model.safetensors.index.json"}},
      {"deepspeed_config", deepspeed_config, {here + "deepspeed.json"}},
      {"dataset_registry", dataset_registry, {"tests/config/cases/llamafactory_registry/data/dataset_info.json"}},
      {"run_metrics", run_with<kMetricsName>, {run + "metrics.jsonl"}},
      {"run_config", run_with<kConfigName>, {run + "resolved_config.json"}},
      {"run_results", run_with<kResultsName>, {run + "train_results.json"}},
      {"run_history", run_with<kHistoryName>, {run + "trainer_state.json"}},
      {"run_messages", run_with<kMessagesName>, {run + "messages.jsonl"}},
      {"run_samples", run_with<kSamplesName>, {here + "samples.jsonl"}},
      {"result_mark", result_mark, {here + "result.json"}},
      {"manifest", manifest, {run + "checkpoint-4/manifest.json"}},
      {"training_state", training_state, {run + "checkpoint-4/training_state.json"}},
      {"trainer_state", trainer_state, {run + "checkpoint-4/trainer_state.json"}},
      {"step_trace", step_trace, {here + "trace-rank-0.json"}},
      {"gemm_choices", gemm_choice_file, {here + "gemm_choices.json"}},
  };
}

}  // namespace qtrain::fuzz
