// What is changed in a run after it was done: each change is found and named.
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "tests/e2e/verified_run.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;

/// One thing that somebody does to the files of a run.
struct Tampering {
  enum class Seal : std::uint8_t { kept, anew };  ///< whether manifests are made anew then
  std::string name;
  std::string folder, file;  ///< in the output directory
  std::function<void(const fs::path& file)> change;
  Seal seal = Seal::anew;
  std::string says = {};  ///< beside the name of the file
};

std::function<void(const fs::path&)> text(const std::string& from, const std::string& to) {
  return [=](const fs::path& file) { change_text(file, from, to); };
}
std::function<void(const fs::path&)> value(const std::string& pointer, const Json& is) {
  return [=](const fs::path& file) {
    Json json = read_json(file);
    const Json::json_pointer at(pointer);
    ASSERT_TRUE(json.contains(at)) << pointer << " in " << file;
    ASSERT_NE(json[at], is) << pointer;
    json[at] = is;
    write_document(file, json);
  };
}
void flip_last_bit(const fs::path& file) {
  std::string bytes = bytes_of(file);
  bytes.back() ^= 1;
  write_file(file, bytes);
}
void write_garbage(const fs::path& file) {
  write_file(file, std::string(fs::file_size(file), 'x'));
}
void add_blank(const fs::path& file) {
  write_file(file, bytes_of(file) + " \n");
}
void write_document_beside(const fs::path& file) {
  fs::create_directories(file.parent_path());
  write_file(file, "{}\n");
}
void remove(const fs::path& file) {
  fs::remove(file);
}

/// Of every state the same, in a full run and an adapter's.
std::vector<Tampering> of_each(const std::string& folder) {
  const std::string about = folder.empty() ? "Result" : "Checkpoint";
  return {{about + "Weights", folder, "model.safetensors", flip_last_bit},
          {about + "Config", folder, "config.json", value("/rms_norm_eps", 0.5)},
          {about + "Tokenizer", folder, "tokenizer.json", text("\"Ġ", "\"ġ")},
          {about + "TokenizerConfig", folder, "tokenizer_config.json", text("{", "{ ")},
          {about + "Template", folder, "chat_template.jinja", add_blank},
          {about + "EarlyLoss", folder, "trainer_state.json", value("/log_history/0/loss", 1.5)},
          {about + "EvalLoss", folder, "trainer_state.json", value("/log_history/2/eval_loss", 1.5)},
          {about + "Flos", folder, "trainer_state.json", value("/total_flos", 7.0)},
          {about + "TrainerStateBlank", folder, "trainer_state.json", add_blank}};
}

std::vector<Tampering> of_states() {
  return {{"OptimizerState", "checkpoint-2", "optimizer.safetensors", flip_last_bit},
          {"LastOptimizerState", "checkpoint-4", "optimizer.safetensors", flip_last_bit},
          {"SumOfLosses", "checkpoint-2", "training_state.json", value("/loss_total", 3.5)},
          {"Tokens", "checkpoint-4", "training_state.json", value("/tokens", 7)},
          {"LogInterval", "checkpoint-4", "training_state.json", value("/identity/keys/logging_first_step", true)},
          {"DeviceOfACheckpoint", "checkpoint-2", "training_state.json", value("/identity/device", "Another, AVX9")},
          {"NotResumable", "checkpoint-2", "training_state.json", value("/resumable", false)},
          {"TrainLoss", "", "train_results.json", value("/train_loss", 0.5)},
          {"WorldSize", "", "manifest.json", value("/world_size", 2)},
          {"MetricsOfTheResult", "", "train_results.json", value("/metrics_jsonl/sha256", std::string(64, '0'))}};
}

std::vector<Tampering> without_a_new_manifest() {
  const char* kBeside = "not among the files that were saved";
  return {{"BitOfACheckpoint", "checkpoint-2", "optimizer.safetensors", flip_last_bit, Tampering::Seal::kept},
          {"BitOfTheResult", "", "tokenizer.json", flip_last_bit, Tampering::Seal::kept},
          {"Metrics", "", "metrics.jsonl", text("\"loss\": ", "\"loss\": 1"), Tampering::Seal::kept},
          {"MetricsSpeed", "", "metrics.jsonl", text("\"tokens_per_second\": ", "\"tokens_per_second\": 9"),
           Tampering::Seal::kept},
          {"MetricsGone", "", "metrics.jsonl", remove, Tampering::Seal::kept},
          {"ConfigOfTheRun", "", "resolved_config.json", text("\"seed\": 42", "\"seed\": 43"), Tampering::Seal::kept},
          {"NoManifest", "", "manifest.json", remove, Tampering::Seal::kept, "the result"},
          {"EmptyManifest", "", "manifest.json", [](const fs::path& f) { write_file(f, "{}\n"); },
           Tampering::Seal::kept, "is damaged"},
          {"CutManifest", "", "manifest.json", [](const fs::path& f) { write_file(f, bytes_of(f).substr(0, 90)); },
           Tampering::Seal::kept, "the result"},
          {"NoManifestOfACheckpoint", "checkpoint-4", "manifest.json", remove, Tampering::Seal::kept, "checkpoint-4"},
          {"AFileBeside", "", "added_tokens.json", write_document_beside, Tampering::Seal::kept, kBeside},
          {"ATokenizerBeside", "", "tekken.json", write_document_beside, Tampering::Seal::kept, kBeside},
          {"WeightsBeside", "", "Model.Safetensors", write_document_beside, Tampering::Seal::kept, kBeside},
          {"WeightsOfOthersBeside", "", "model.onnx", write_document_beside, Tampering::Seal::kept, kBeside},
          {"QuantizationBeside", "", "quantization_config.json", write_document_beside, Tampering::Seal::kept, kBeside},
          {"PiecesBeside", "checkpoint-2", "spiece.model", write_document_beside, Tampering::Seal::kept, kBeside},
          {"CodeBeside", "", "custom_generate/generate.py", write_document_beside, Tampering::Seal::kept, kBeside},
          {"ATemplateBeside", "checkpoint-2", "additional_chat_templates/rag.jinja",
           [](const fs::path& f) {
             fs::create_directories(f.parent_path());
             write_file(f, "{{ messages }}");
           },
           Tampering::Seal::kept, kBeside}};
}

class TamperedRun : public VerifiedRun {
 protected:
  void tamper(const Tampering& t) const {
    const fs::path folder = output() / t.folder;
    t.change(folder / t.file);
    if (t.seal == Tampering::Seal::anew) seal(folder);
  }
  /// Lets the result say what lies beside it now.
  void seal_what_lies_beside() const {
    Json results = read_json(output() / "train_results.json");
    const std::string metrics = bytes_of(output() / "metrics.jsonl");
    results["resolved_config_sha256"] = sha256_of_file(output() / "resolved_config.json");
    results["metrics_jsonl"] = {{"bytes", metrics.size()}, {"sha256", sha256_of(metrics)}};
    write_document(output() / "train_results.json", results);
    seal(output());
  }
  // Whatever is done again: all of it.
  void expect_named(const Tampering& t, const Outcome& o) const {
    EXPECT_EQ(o.code, 3) << o.out << o.err;
    EXPECT_THAT(o.out, HasSubstr("is not what was recorded"));
    EXPECT_THAT(o.out, HasSubstr(fs::path(t.file).filename().string())) << o.err;
    EXPECT_THAT(o.out, HasSubstr(t.says)) << o.err;
  }
  /// Each change on the same run, whose files come back then.
  void expect_all_found(const std::vector<Tampering>& all) {
    fs::copy(output(), at("kept"), fs::copy_options::recursive);
    for (const Tampering& t : all) {
      SCOPED_TRACE(t.name);
      tamper(t);
      expect_named(t, verify({"--steps", t.seal == Tampering::Seal::kept ? "0" : "100"}));
      fs::remove_all(output());
      fs::copy(at("kept"), output(), fs::copy_options::recursive);
    }
    EXPECT_EQ(verify().code, 0) << "the files are what they were";
  }
};

TEST_F(TamperedRun, ThatSealedItsResultAnewIsRefused) {
  train_ok(folder_.path(), config());
  expect_all_found(of_each(""));
}

TEST_F(TamperedRun, ThatSealedACheckpointAnewIsRefused) {
  train_ok(folder_.path(), config());
  expect_all_found(of_each("checkpoint-2"));
}

TEST_F(TamperedRun, ThatSealedItsStatesAnewIsRefused) {
  train_ok(folder_.path(), config());
  expect_all_found(of_states());
}

TEST_F(TamperedRun, ThatKeptItsManifestsIsRefused) {
  train_ok(folder_.path(), config());
  expect_all_found(without_a_new_manifest());
}

TEST_F(TamperedRun, OfAnAdapterIsRefused) {
  train_ok(folder_.path(), adapter_config());
  expect_all_found({{"Alpha", "", "adapter_config.json", value("/lora_alpha", 800)},
                    {"AlphaOfACheckpoint", "checkpoint-2", "adapter_config.json", value("/lora_alpha", 800)},
                    {"Base", "", "adapter_config.json", value("/base_model_name_or_path", "another")},
                    {"Tokenizer", "", "tokenizer.json", text("\"Ġ", "\"ġ")},
                    {"Weights", "", "adapter_model.safetensors", flip_last_bit}});
}

TEST_F(TamperedRun, GarbageInThePlaceOfWeightsIsRefused) {
  train_ok(folder_.path(), config());
  for (const char* manifest : {"gone", "damaged"}) {
    SCOPED_TRACE(manifest);
    write_garbage(output() / "model.safetensors");
    fs::remove(output() / "manifest.json");
    if (manifest == std::string("damaged")) write_file(output() / "manifest.json", "{\"step\": 4}\n");
    const Outcome o = verify({"--steps", "0"});
    EXPECT_EQ(o.code, 3) << o.out;
    EXPECT_THAT(o.out, HasSubstr("manifest.json"));
    const Outcome stated = verify({"--statement", at("s.json").string()});
    EXPECT_NE(stated.code, 0);
    EXPECT_FALSE(fs::exists(at("s.json")));
  }
}

// A file that was sealed beside the others, or taken from them.
TEST_F(TamperedRun, OtherSetsOfFilesAreRefused) {
  train_ok(folder_.path(), config());
  Json manifest = read_json(output() / "manifest.json");
  write_file(output() / "added_tokens.json", "{\"<evil>\": 7}\n");
  manifest["files"]["added_tokens.json"] = Json::object();
  write_document(output() / "manifest.json", manifest);
  seal(output());
  Outcome o = verify();
  EXPECT_EQ(o.code, 3);
  EXPECT_THAT(o.out, HasSubstr("added_tokens.json was sealed, and the steps make no such file"));
  manifest["files"].erase("added_tokens.json");
  manifest["files"].erase("chat_template.jinja");
  fs::remove(output() / "added_tokens.json");
  fs::remove(output() / "chat_template.jinja");
  write_document(output() / "manifest.json", manifest);
  seal(output());
  o = verify();
  EXPECT_EQ(o.code, 3);
  EXPECT_THAT(o.out, HasSubstr("chat_template.jinja is missing among what was sealed"));
}

// What is measured differs whenever steps are done again, but nothing else has a place under its names.
TEST_F(TamperedRun, ThatSaysMoreUnderTheNamesOfMeasurementsIsRefused) {
  const auto add = [](const std::string& pointer, const Json& is) {
    return [=](const fs::path& file) {
      Json json = read_json(file);
      json[Json::json_pointer(pointer)] = is;
      write_document(file, json);
    };
  };
  train_ok(folder_.path(), config());
  expect_all_found({{"Claim", "", "trainer_state.json", add("/memory", {{"eval_accuracy", 0.99}})},
                    {"ClaimOfARow", "", "trainer_state.json", add("/log_history/0/time", 0.99)},
                    {"ClaimOfACheckpoint", "checkpoint-2", "trainer_state.json", add("/log_history/0/seconds", 1)},
                    {"Text", "", "train_results.json", add("/train_runtime", "short")},
                    {"Part", "", "train_results.json", add("/memory/planned/eval_accuracy", 0.99)},
                    {"Graphs", "", "train_results.json", add("/cuda_graphs", {{"accuracy", 0.99}})}});
}

// A stop may come before an evaluation that was due; which one was the best before is no matter of choice then.
TEST_F(TamperedRun, AnInventedBestOfAStoppedRunIsRefused) {
  Json c = config();
  c.update({{"max_steps", 8}, {"load_best_model_at_end", true}, {"metric_for_best_model", "eval_loss"}});
  write_file(at("run.json"), dump_json(c));
  ASSERT_EQ(qtrain({.words = {at("run.json").string(), "--stop_after", "4"}, .folder = folder_.path()}).code, 75);
  const fs::path state = output() / "checkpoint-4/trainer_state.json",
                 training = state.parent_path() / "training_state.json";
  const Json logged = read_json(state), before = read_json(training);
  ASSERT_EQ(logged["best_global_step"], 4);
  std::vector<Json> metrics = read_jsonl(output() / "metrics.jsonl");
  const auto is_last = [](const Json& row) { return row.contains("eval_loss") && row["step"] == 4; };
  std::erase_if(metrics, is_last);
  write_file(output() / "metrics.jsonl", jsonl(metrics));
  const auto pend = [&](const Json& metric, const std::string& folder) {
    Json now = before, rows = logged;
    now.update({{"events_pending", true}, {"best_step", 2}, {"best_metric", metric}, {"best_checkpoint", folder}});
    rows.update({{"best_global_step", 2}, {"best_metric", metric}, {"best_model_checkpoint", folder}});
    std::erase_if(rows["log_history"].get_ref<Json::array_t&>(), is_last);
    write_document(training, now);
    write_document(state, rows);
    seal(state.parent_path());
    return verify();
  };
  const Json earlier = history(state.parent_path(), "eval_loss").front()["eval_loss"];
  const std::string folder = (output() / "checkpoint-2").string();
  Outcome o = pend(earlier, folder);
  EXPECT_EQ(o.code, 0) << "as a stop before the evaluation leaves it\n" << o.out << o.err;
  o = pend(0.0001, folder);
  EXPECT_EQ(o.code, 3) << o.out;
  EXPECT_THAT(o.out, HasSubstr("best_metric"));
  EXPECT_EQ(pend(earlier, (output() / "checkpoint-3").string()).code, 3);
}

// The result is done again whichever other steps are chosen, so nothing is attested that was not.
TEST_F(TamperedRun, AStatementIsAboutAResultThatWasDoneAgain) {
  train_ok(folder_.path(), config());
  change_text(output() / "tokenizer_config.json", "{", "{ ");
  fs::copy_file(output() / "tokenizer_config.json", output() / "checkpoint-4/tokenizer_config.json",
                fs::copy_options::overwrite_existing);
  fs::copy_file(output() / "tokenizer_config.json", output() / "checkpoint-2/tokenizer_config.json",
                fs::copy_options::overwrite_existing);
  for (const char* folder : {"", "checkpoint-2", "checkpoint-4"}) seal(output() / folder);
  const Outcome o = verify({"--steps", "1", "--statement", at("s.json").string()});
  EXPECT_EQ(o.code, 3) << o.out;
  EXPECT_THAT(o.out, HasSubstr("the result: tokenizer_config.json has other contents"));
  EXPECT_FALSE(fs::exists(at("s.json")));
}

// The result comes first; it is changed while the steps before it are done.
TEST_F(TamperedRun, AStatementIsAboutTheFilesThatWereCompared) {
  train_ok(folder_.path(), config());
  const std::string honest = sha256_of_file(output() / "model.safetensors");
  const auto does_first_steps = [&] {
    for (const auto& entry : fs::directory_iterator(folder_.path()))
      if (entry.path().filename().string().starts_with("qtrain-verify-") && fs::exists(entry.path() / "0-2.json"))
        return true;
    return false;
  };
  std::atomic<bool> changed = false, over = false;
  std::thread other([&] {
    while (!over && !does_first_steps()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (over) return;
    flip_last_bit(output() / "model.safetensors");
    seal(output());
    changed = true;
  });
  const Outcome o = verify({"--steps", "100", "--statement", at("s.json").string()});
  over = true;
  other.join();
  ASSERT_TRUE(changed);
  ASSERT_EQ(o.code, 0) << o.out << o.err;
  bool named = false;
  const Json statement = read_json(at("s.json"));
  for (const Json& subject : statement.at("subject"))
    if (subject.at("name") == "model.safetensors") named = subject.at("digest").at("sha256") == honest;
  EXPECT_TRUE(named);
  EXPECT_EQ(verify().code, 3);
}

// Everything that could say otherwise is made anew: only doing the steps again shows it.
TEST_F(TamperedRun, AnotherDeviceIsNotAttested) {
  train_ok(folder_.path(), config());
  const fs::path resolved = output() / "resolved_config.json";
  const std::string device = read_json(resolved)["run"]["device"];
  change_text(resolved, dump_json(Json(device)), "\"Another processor, AVX9\"");
  seal_what_lies_beside();
  const Outcome o = verify({"--statement", at("s.json").string()});
  EXPECT_EQ(o.code, 3) << o.out;
  EXPECT_THAT(o.out, HasSubstr("resolved_config.json says that device is \"Another processor, AVX9\""));
  EXPECT_FALSE(fs::exists(at("s.json")));
}

// A statement names these, so that none may be left out and none invented.
TEST_F(TamperedRun, WhatItWasMadeOfIsNotLeftOut) {
  train_ok(folder_.path(), config());
  const fs::path resolved = output() / "resolved_config.json";
  const Json honest = read_json(resolved);
  const std::string tokenizer = (model() / "tokenizer.json").string(), other = (model() / "other.json").string();
  fs::copy_file(tokenizer, other);
  const auto expect_refused = [&](const std::string& says, const std::function<void(Json & run)>& change) {
    Json json = honest;
    change(json["run"]);
    write_document(resolved, json);
    seal_what_lies_beside();
    const Outcome o = verify({"--statement", at("s.json").string()});
    EXPECT_EQ(o.code, 3) << o.out;
    EXPECT_THAT(o.out, HasSubstr(says));
    EXPECT_FALSE(fs::exists(at("s.json")));
  };
  expect_refused("run.files." + tokenizer, [&](Json& run) {
    for (const char* files : {"files", "files_sha256"}) run[files].erase(tokenizer);
  });
  expect_refused("run.files." + other, [&](Json& run) {
    for (const char* files : {"files", "files_sha256"}) run[files][other] = run[files][tokenizer];
  });
  expect_refused("run.files_sha256", [](Json& run) { run.erase("files_sha256"); });
  for (const char* key : {"training_data_sha256", "evaluation_data_sha256", "ranks"})
    expect_refused(fmt::format("says that {} is null", key), [&](Json& run) { run.erase(key); });
  write_document(resolved, honest);
  seal_what_lies_beside();
  EXPECT_EQ(verify().code, 0);
}

TEST_F(TamperedRun, RowsThatWereNotLoggedAreRefused) {
  train_ok(folder_.path(), config());
  const fs::path metrics = output() / "metrics.jsonl";
  const std::vector<Json> honest = read_jsonl(metrics);
  const auto expect_refused = [&](const std::string& says,
                                  const std::function<void(std::vector<Json> & rows)>& change) {
    std::vector<Json> rows = honest;
    change(rows);
    write_file(metrics, jsonl(rows));
    seal_what_lies_beside();
    const Outcome o = verify({"--steps", "0"});
    EXPECT_EQ(o.code, 3) << o.out;
    EXPECT_THAT(o.out, HasSubstr("metrics.jsonl: " + says));
  };
  expect_refused("says", [](auto& rows) { rows[0]["eval_accuracy"] = 0.99; });
  expect_refused("says", [](auto& rows) { rows.back()["train_loss"] = 0.1; });
  expect_refused("says", [](auto& rows) {
    rows.insert(rows.begin(), Json{{"step", 1}, {"loss", 0.1}, {"train_runtime", 1}});
  });
  expect_refused("says", [](auto& rows) { rows.push_back({{"step", 9}, {"loss", 0.1}}); });
  expect_refused("lacks the first 3", [](auto& rows) { rows.erase(rows.begin(), rows.begin() + 3); });
  write_file(metrics, jsonl(honest));
  seal_what_lies_beside();
  write_file(metrics, jsonl(honest) + "{\"step\": 5, \"loss\": 0.1}\n");
  EXPECT_EQ(verify({"--steps", "0"}).code, 0) << "a run that goes on logs more";
  write_file(metrics, jsonl(honest) + "{\"step\": 4, \"eval_acc");
  EXPECT_EQ(verify({"--steps", "0"}).code, 0) << "and may be killed in the middle of a row";
  write_file(metrics, jsonl(honest) + "{\"step\": 4, \"eval_accuracy\": 0.99}");
  const Outcome o = verify({"--steps", "0"});
  EXPECT_EQ(o.code, 3) << "a row without an end of its line is one\n" << o.out;
  EXPECT_THAT(o.out, HasSubstr("metrics.jsonl: "));
}

TEST_F(TamperedRun, AKeyThatOtherStepsWereMadeWithIsNamed) {
  train_ok(folder_.path(), config());
  const fs::path resolved = output() / "resolved_config.json";
  Json json = read_json(resolved);
  json["values"]["per_device_eval_batch_size"]["value"] = 3;
  json["values"]["per_device_eval_batch_size"]["origin"] = "config.json";
  write_document(resolved, json);
  seal_what_lies_beside();
  const Outcome o = verify();
  EXPECT_EQ(o.code, 3) << o.out;
  EXPECT_THAT(o.out, HasSubstr("per_device_eval_batch_size is 3 there and 8 here"));
}

// A statement repeats values, so that none may be invented, left out or be another one than was in force.
TEST_F(TamperedRun, AConfigOfOtherKeysOrFormsIsRefused) {
  struct Case {
    std::string says;
    std::function<void(Json& values)> change;
  };
  const auto invented = [](const char* origin) {
    return [=](Json& values) { values["reviewed"] = {{"value", nullptr}, {"origin", origin}}; };
  };
  const auto set = [](const char* key, const Json& is) { return [=](Json& values) { values[key]["value"] = is; }; };
  Json whole = config();
  whole["save_strategy"] = "no";  // checkpoints have their keys as well
  train_ok(folder_.path(), whole);
  const fs::path resolved = output() / "resolved_config.json";
  const Json honest = read_json(resolved);
  for (const Case& c :
       {Case{"reviewed was null, and is no key", invented("default (hf)")}, Case{"reviewed", invented("config.json")},
        Case{"adam_beta1 is not recorded", [](Json& values) { values.erase("adam_beta1"); }},
        Case{"zero_group_size was 3, and is 0 now", set("zero_group_size", 3)},
        Case{"max_steps was 4.0, and is 4 now", set("max_steps", 4.0)}}) {
    SCOPED_TRACE(c.says);
    Json json = honest;
    c.change(json["values"]);
    write_document(resolved, json);
    seal_what_lies_beside();
    const Outcome o = verify({"--statement", at("s.json").string()});
    EXPECT_EQ(o.code, 3) << o.out << o.err;
    EXPECT_THAT(o.out + o.err, HasSubstr(c.says));
    EXPECT_FALSE(fs::exists(at("s.json")));
  }
}

TEST_F(TamperedRun, RanksThatNoMachineHasAreNotStarted) {
  train_ok(folder_.path(), config());
  change_text(output() / "resolved_config.json", "\"ranks\": 1", "\"ranks\": 4000");
  seal_what_lies_beside();
  for (const fs::path& folder : {output() / "checkpoint-2", output() / "checkpoint-4"}) fs::remove_all(folder);
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"verify", output().string(), "--scratch", folder_.path().string()},
        {"reproduce", output().string(), "--output", at("again").string()}}) {
    const Outcome o = qtrain({.words = words});
    EXPECT_EQ(o.code, 3) << o.out << o.err;
    EXPECT_THAT(o.err, HasSubstr("4000 ranks are recorded"));
  }
  EXPECT_FALSE(fs::exists(at("again")));
}

// What was asked for there is not known from what came of it.
TEST_F(TamperedRun, ANumberOfRanksIsAttestedAsItWas) {
  train_ok(folder_.path(), config());
  const fs::path resolved = output() / "resolved_config.json";
  Json json = read_json(resolved);
  json["values"]["nproc"]["value"] = 64;
  write_document(resolved, json);
  seal_what_lies_beside();
  const Outcome o = verify({"--statement", at("s.json").string()});
  ASSERT_EQ(o.code, 0) << o.out << o.err;
  const Json definition = read_json(at("s.json"))["predicate"]["buildDefinition"];
  EXPECT_EQ(definition["internalParameters"]["qtrain_ranks"], 1);
  EXPECT_FALSE(definition["externalParameters"].contains("nproc"));
}

// The time that a file takes grows with its size, not with its square.
TEST_F(TamperedRun, LongDocumentsAreReadInTime) {
  Json::object_t names, values;
  for (int i = 0; i < 200'000; ++i) {
    names.emplace_back(fmt::format("/{}", i), "0");
    values.emplace_back(fmt::format("key_{}", i), Json{{"value", 1}, {"origin", "config.json"}});
  }
  const auto widen = [&](const Json& to, const std::vector<std::string>& pointers) {
    return [&to, pointers](const fs::path& file) {
      Json json = read_json(file);
      for (const std::string& pointer : pointers) json[Json::json_pointer(pointer)] = to;
      write_document(file, json);
    };
  };
  const Json of_names = names, of_values = values;
  train_ok(folder_.path(), config());
  const auto begin = std::chrono::steady_clock::now();
  expect_all_found({{"Files", "", "resolved_config.json", widen(of_names, {"/run/files", "/run/files_sha256"})},
                    {"Keys", "checkpoint-2", "training_state.json", widen(of_names, {"/identity/keys"})},
                    {"Model", "checkpoint-4", "training_state.json", widen(of_names, {"/identity/model"})},
                    {"Row", "checkpoint-2", "trainer_state.json", widen(of_names, {"/log_history/0"})}});
  widen(of_values, {"/values"})(output() / "resolved_config.json");
  const Outcome o = verify({"--steps", "0"});
  EXPECT_EQ(o.code, 3) << o.err;
  EXPECT_THAT(o.err, HasSubstr("\"values\" are more than a config has"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

// A fault of the run, not of how this command was called.
TEST_F(TamperedRun, AConfigThatCannotRunIsNamed) {
  train_ok(folder_.path(), config());
  const fs::path resolved = output() / "resolved_config.json";
  Json json = read_json(resolved);
  json["values"]["threads"] = {{"value", 100'000}, {"origin", "config.json"}};
  write_document(resolved, json);
  seal_what_lies_beside();
  const Outcome o = verify({"--statement", at("s.json").string()});
  EXPECT_EQ(o.code, 3) << o.out << o.err;
  EXPECT_THAT(o.out, HasSubstr("resolved_config.json holds a config that does not run"));
  EXPECT_THAT(o.out, HasSubstr("threads"));
  EXPECT_FALSE(fs::exists(at("s.json")));
}

TEST_F(TamperedRun, OtherInputsAreRefused) {
  train_ok(folder_.path(), config());
  const std::string row = bytes_of(rows());
  change_text(rows(), "row 7 of", "row 8 of");
  Outcome o = verify();
  EXPECT_EQ(o.code, 3);
  EXPECT_THAT(o.out, HasSubstr("cannot be done again"));
  EXPECT_THAT(o.out, HasSubstr("other rows"));
  write_file(rows(), row);
  change_text(model() / "tokenizer_config.json", "{", "{ ");
  o = verify();
  EXPECT_EQ(o.code, 3);
  EXPECT_THAT(o.out, HasSubstr("has other contents than in the run"));
}

TEST_F(TamperedRun, CheckpointsOfOtherRunsAndPlacesAreRefused) {
  train_ok(folder_.path(), config());
  Json other = config();
  other.update({{"seed", 43}, {"output_dir", at("other").string()}});
  train_ok(folder_.path(), other);
  fs::rename(output() / "checkpoint-4", at("kept"));
  fs::copy(at("other/checkpoint-4"), output() / "checkpoint-4", fs::copy_options::recursive);
  Outcome o = verify({"--steps", "0"});
  EXPECT_EQ(o.code, 3);
  EXPECT_THAT(o.out, HasSubstr("its config is not that of checkpoint-2: seed = 42, the config says 43"));
  fs::remove_all(output() / "checkpoint-4");
  fs::rename(output() / "checkpoint-2", output() / "checkpoint-4");
  fs::rename(at("kept"), output() / "checkpoint-2");
  o = verify({"--steps", "0"});
  EXPECT_EQ(o.code, 3);
  EXPECT_THAT(o.out, HasSubstr("checkpoint-2"));
}

}  // namespace
}  // namespace qtrain::e2e
