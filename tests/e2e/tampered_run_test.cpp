// Every modification of a finished run is found and named.
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/e2e/tampered_run.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;

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

/// The modifications that apply to every state, of full runs and of adapters.
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
          {"SettingsBeside", "", "configuration.json", write_document_beside, Tampering::Seal::kept, kBeside},
          {"PiecesBeside", "checkpoint-2", "spiece.model", write_document_beside, Tampering::Seal::kept, kBeside},
          {"CodeBeside", "", "custom_generate/generate.py", write_document_beside, Tampering::Seal::kept, kBeside},
          {"ATemplateBeside", "checkpoint-2", "additional_chat_templates/rag.jinja",
           [](const fs::path& f) {
             fs::create_directories(f.parent_path());
             write_file(f, "{{ messages }}");
           },
           Tampering::Seal::kept, kBeside}};
}

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

// A file is added to the sealed ones, or removed.
TEST_F(TamperedRun, OtherSetsOfFilesAreRefused) {
  train_ok(folder_.path(), config());
  Json manifest = read_json(output() / "manifest.json");
  write_file(output() / "added_tokens.json", "{\"<evil>\": 7}\n");
  manifest["files"]["added_tokens.json"] = Json::object();
  write_document(output() / "manifest.json", manifest);
  seal(output());
  Outcome o = verify();
  EXPECT_EQ(o.code, 3);
  EXPECT_THAT(o.out, HasSubstr("added_tokens.json was sealed, but repeating the steps does not write such a file"));
  manifest["files"].erase("added_tokens.json");
  manifest["files"].erase("chat_template.jinja");
  fs::remove(output() / "added_tokens.json");
  fs::remove(output() / "chat_template.jinja");
  write_document(output() / "manifest.json", manifest);
  seal(output());
  o = verify();
  EXPECT_EQ(o.code, 3);
  EXPECT_THAT(o.out, HasSubstr("chat_template.jinja is missing from the sealed files"));
}

// Readers of JSON would take them for equal.
TEST_F(TamperedRun, ManifestsInAnotherFormAreRefused) {
  train_ok(folder_.path(), config());
  const std::string whole = bytes_of(output() / "manifest.json");
  const Json manifest = read_json(output() / "manifest.json");
  const struct {
    const char* name;
    std::function<void(Json& manifest)> change;
  } cases[] = {
      {"a size with a fraction",
       [](Json& m) { m["files"]["config.json"]["size"] = m["files"]["config.json"]["size"].get<double>(); }},
      {"a name with a zero byte",
       [](Json& m) { m["files"][std::string("config.json\0", 12)] = m["files"]["config.json"]; }},
      {"another name of a file", [](Json& m) { m["files"]["./config.json"] = m["files"]["config.json"]; }},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    Json other = manifest;
    other.erase("sha256");
    c.change(other);
    other["sha256"] = sha256_of(dump_json(other));
    write_document(output() / "manifest.json", other);
    const Outcome o = verify();
    EXPECT_EQ(o.code, 3) << o.out << o.err;
    EXPECT_THAT(o.out, HasSubstr("manifest"));
  }
  write_file(output() / "manifest.json", whole);
  EXPECT_EQ(verify().code, 0);
}

// The result is always recomputed, whichever other steps are chosen, so nothing is attested without that.
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
  EXPECT_THAT(o.out, HasSubstr("the result: tokenizer_config.json has different contents"));
  EXPECT_FALSE(fs::exists(at("s.json")));
}

// The result is compared first; then it is changed while earlier steps are repeated.
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

// Everything that could contradict the change is regenerated, so only repeating the steps reveals it.
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

// A statement lists these, so none may be omitted and none invented.
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
  EXPECT_THAT(o.out, HasSubstr("per_device_eval_batch_size is 3 in the former and 8 in the latter"));
}

// The fault is in the run, not in how this command was called.
TEST_F(TamperedRun, AConfigThatCannotRunIsNamed) {
  train_ok(folder_.path(), config());
  const fs::path resolved = output() / "resolved_config.json";
  Json json = read_json(resolved);
  json["values"]["threads"] = {{"value", -3}, {"origin", "config.json"}};
  write_document(resolved, json);
  seal_what_lies_beside();
  const Outcome o = verify({"--statement", at("s.json").string()});
  EXPECT_EQ(o.code, 3) << o.out << o.err;
  EXPECT_THAT(o.out, HasSubstr("the config in resolved_config.json is invalid"));
  EXPECT_THAT(o.out, HasSubstr("threads"));
  EXPECT_FALSE(fs::exists(at("s.json")));
}

TEST_F(TamperedRun, OtherInputsAreRefused) {
  train_ok(folder_.path(), config());
  const std::string row = bytes_of(rows());
  change_text(rows(), "row 7 of", "row 8 of");
  Outcome o = verify();
  EXPECT_EQ(o.code, 3);
  EXPECT_THAT(o.out, HasSubstr("cannot be repeated"));
  EXPECT_THAT(o.out, HasSubstr("different rows"));
  write_file(rows(), row);
  change_text(model() / "tokenizer_config.json", "{", "{ ");
  o = verify();
  EXPECT_EQ(o.code, 3);
  EXPECT_THAT(o.out, HasSubstr("its contents have changed since the run"));
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
  EXPECT_THAT(o.out, HasSubstr("its config does not match that of checkpoint-2: seed = 42, the config says 43"));
  fs::remove_all(output() / "checkpoint-4");
  fs::rename(output() / "checkpoint-2", output() / "checkpoint-4");
  fs::rename(at("kept"), output() / "checkpoint-2");
  o = verify({"--steps", "0"});
  EXPECT_EQ(o.code, 3);
  EXPECT_THAT(o.out, HasSubstr("checkpoint-2"));
}

}  // namespace
}  // namespace qtrain::e2e
