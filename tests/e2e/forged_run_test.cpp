// False claims in the records of a run, with everything that could contradict them regenerated: none is attested.
#include <fmt/format.h>

#include <chrono>

#include "tests/e2e/tampered_run.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;

class ForgedRun : public TamperedRun {};

// Measurements differ whenever steps are repeated, but nothing else may use their names.
TEST_F(ForgedRun, ThatSaysMoreUnderTheNamesOfMeasurementsIsRefused) {
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

// A stop may preempt an evaluation that was due, but that does not make the earlier best checkpoint a matter of choice.
TEST_F(ForgedRun, AnInventedBestOfAStoppedRunIsRefused) {
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
  EXPECT_EQ(o.code, 0) << "the state that a stop before the evaluation leaves\n" << o.out << o.err;
  o = pend(0.0001, folder);
  EXPECT_EQ(o.code, 3) << o.out;
  EXPECT_THAT(o.out, HasSubstr("best_metric"));
  EXPECT_EQ(pend(earlier, (output() / "checkpoint-3").string()).code, 3);
}

// A statement repeats the values of the config, so no value may be invented, omitted, or differ from the one in force.
TEST_F(ForgedRun, AConfigOfOtherKeysOrFormsIsRefused) {
  struct Case {
    std::string says;
    std::function<void(Json& values)> change;
  };
  const auto invented = [](const char* origin) {
    return [=](Json& values) { values["reviewed"] = {{"value", nullptr}, {"origin", origin}}; };
  };
  const auto set = [](const char* key, const Json& is) { return [=](Json& values) { values[key]["value"] = is; }; };
  Json whole = config();
  whole["save_strategy"] = "no";  // checkpoints have these keys too
  train_ok(folder_.path(), whole);
  const fs::path resolved = output() / "resolved_config.json";
  const Json honest = read_json(resolved);
  for (const Case& c : {Case{"reviewed was null, but there is no such key", invented("default (hf)")},
                        Case{"reviewed", invented("config.json")},
                        Case{"adam_beta1 is not recorded", [](Json& values) { values.erase("adam_beta1"); }},
                        Case{"zero_group_size was 3, but is now 0", set("zero_group_size", 3)},
                        Case{"max_steps was 4.0, but is now 4", set("max_steps", 4.0)}}) {
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

// The last steps take the weights of the best checkpoint from its folder when they are repeated, so its own steps have
// to be among those that are.
TEST_F(ForgedRun, WeightsOfTheBestCheckpointAreDoneAgain) {
  const Json best{{"max_steps", 8},           {"save_steps", 1},
                  {"eval_steps", 1},          {"load_best_model_at_end", true},
                  {"warmup_steps", 0},        {"metric_for_best_model", "eval_loss"},
                  {"greater_is_better", true}};
  const struct {
    const char* weights;
    Json config;
  } cases[] = {{"model.safetensors", config()}, {"adapter_model.safetensors", adapter_config()}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.weights);
    fs::remove_all(output());
    Json config = c.config;
    config.update(best);
    train_ok(folder_.path(), config);
    const Json state = read_json(output() / "trainer_state.json");
    ASSERT_LT(state["best_global_step"], 7);
    const fs::path folder = output() / fs::path(state["best_model_checkpoint"].get<std::string>()).filename();
    EXPECT_EQ(verify({"--statement", at("honest.json").string(), "--overwrite"}).code, 0);
    std::string bytes = bytes_of(folder / c.weights);
    bytes[bytes.size() - 2] ^= 1;
    for (const fs::path& place : {folder, output()}) {
      write_file(place / c.weights, bytes);
      seal(place);
    }
    for (int tries = 0; tries < 3; ++tries) {
      const Outcome o = verify({"--statement", at("s.json").string()});
      EXPECT_EQ(o.code, 3) << o.out;
      EXPECT_THAT(o.out, HasSubstr(folder.filename().string() + ": " + c.weights));
      EXPECT_FALSE(fs::exists(at("s.json")));
    }
  }
}

// Records have no members that no run writes, which a verification would seem to confirm.
TEST_F(ForgedRun, MembersThatNoRunWritesAreRefused) {
  train_ok(folder_.path(), config());
  const std::string resolved = "resolved_config.json", manifest = "manifest.json";
  fs::copy(output(), at("kept"), fs::copy_options::recursive);
  for (const auto& [file, pointer] : {std::pair(resolved, "/values/dtype/certified"),
                                      {resolved, "/values/output_dir/certified"},
                                      {resolved, "/run/certified"},
                                      {resolved, "/certified"},
                                      {manifest, "/certified"},
                                      {manifest, "/files/model.safetensors/certified"}}) {
    SCOPED_TRACE(pointer);
    Json json = read_json(output() / file);
    json[Json::json_pointer(pointer)] = "by an expert";
    if (file == manifest) {
      json.erase("sha256");
      json["sha256"] = sha256_of(dump_json(json));
    }
    write_document(output() / file, json);
    if (file == resolved) seal_what_lies_beside();
    const Outcome o = verify({"--statement", at("s.json").string()});
    EXPECT_EQ(o.code, 3) << o.out << o.err;
    EXPECT_FALSE(fs::exists(at("s.json")));
    fs::remove_all(output());
    fs::copy(at("kept"), output(), fs::copy_options::recursive);
  }
  EXPECT_EQ(verify().code, 0);
}

// Only rows of metrics.jsonl have the loss scale.
TEST_F(ForgedRun, ALossScaleThatRepeatedStepsDoNotHaveIsRefused) {
  train_ok(folder_.path(), config());
  std::vector<Json> rows = read_jsonl(output() / "metrics.jsonl");
  rows[1]["loss_scale"] = 1024.0;
  write_file(output() / "metrics.jsonl", jsonl(rows));
  seal_what_lies_beside();
  const Outcome o = verify();
  EXPECT_EQ(o.code, 3) << o.out;
  EXPECT_THAT(o.out, HasSubstr("metrics.jsonl: has {"));
  rows.erase(rows.begin());  // as if the run had been continued from a checkpoint elsewhere
  write_file(output() / "metrics.jsonl", jsonl(rows));
  seal_what_lies_beside();
  const Outcome fewer = verify();
  EXPECT_EQ(fewer.code, 3) << fewer.out;
  EXPECT_THAT(fewer.out, HasSubstr("metrics.jsonl: has {"));
}

// A statement repeats what the record says about the program.
TEST_F(ForgedRun, AnInvalidVersionOrHashOfTheProgramIsRefused) {
  train_ok(folder_.path(), config());
  const fs::path resolved = output() / "resolved_config.json";
  const Json honest = read_json(resolved);
  for (const auto& [key, is] : std::vector<std::pair<const char*, Json>>{{"version", ""},
                                                                         {"version", "1.0 \x1b[31mcertified"},
                                                                         {"version", std::string(1000, '1')},
                                                                         {"program_sha256", "certified"},
                                                                         {"program_sha256", std::string(64, 'z')},
                                                                         {"program_sha256", 7}}) {
    SCOPED_TRACE(dump_json(is));
    Json json = honest;
    json["run"][key] = is;
    write_document(resolved, json);
    seal_what_lies_beside();
    const Outcome o = verify({"--statement", at("s.json").string()});
    EXPECT_EQ(o.code, 3) << o.out << o.err;
    EXPECT_THAT(o.err, HasSubstr(key));
    EXPECT_FALSE(fs::exists(at("s.json")));
  }
}

// The repeated steps have the defaults of the present version for keys that another one did not have.
TEST_F(ForgedRun, AStatementOfAnotherVersionHasEveryKey) {
  train_ok(folder_.path(), config());
  const fs::path resolved = output() / "resolved_config.json";
  Json json = read_json(resolved);
  json["run"]["version"] = "0.0.9";
  json["run"].erase("program_sha256");
  json["values"].erase("adam_beta1");
  write_document(resolved, json);
  seal_what_lies_beside();
  const Outcome o = verify({"--statement", at("s.json").string()});
  ASSERT_EQ(o.code, 0) << o.out << o.err;
  EXPECT_EQ(read_json(at("s.json"))["predicate"]["buildDefinition"]["externalParameters"]["adam_beta1"], 0.9);
}

// In JSON, "\\u0061" is "a".
TEST_F(ForgedRun, CodeBesideTheModelIsRefusedHoweverItIsNamed) {
  const std::string plain = bytes_of(model() / "tokenizer_config.json");
  for (const char* key : {"auto_map", "\\u0061uto_map", "auto\\u005fmap"}) {
    SCOPED_TRACE(key);
    std::string text = plain;
    text.insert(text.find('{') + 1, fmt::format(R"("{}": {{"AutoTokenizer": ["own.Tokens", null]}}, )", key));
    write_file(model() / "tokenizer_config.json", text);
    fs::remove_all(output());
    train_ok(folder_.path(), config());
    EXPECT_EQ(verify().code, 0);
    write_file(output() / "own.py", "");
    const Outcome o = verify();
    EXPECT_EQ(o.code, 3) << o.out;
    EXPECT_THAT(o.out, HasSubstr("own.py is not among the files that were saved"));
  }
}

TEST_F(ForgedRun, RanksThatNoMachineHasAreNotStarted) {
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

// Nor those of the start that made the result of a run that was shortened.
TEST_F(ForgedRun, RanksOfALaterStartThatNoMachineHasAreNotStarted) {
  Json longer = config();
  longer["max_steps"] = 6;
  write_file(at("longer.json"), dump_json(longer));
  ASSERT_EQ(qtrain({.words = {"train", at("longer.json").string(), "--stop_after", "4"}}).code, 75);
  train_ok(folder_.path(), config());
  EXPECT_EQ(verify().code, 0);
  change_text(output() / "resolved_config.json", "\"ranks\": 1", "\"ranks\": 4000");
  seal_what_lies_beside();
  const Outcome o = verify();
  EXPECT_EQ(o.code, 3) << o.out << o.err;
  EXPECT_THAT(o.err, HasSubstr("4000 ranks are recorded"));
}

// The number of ranks that was requested cannot be determined from the result.
TEST_F(ForgedRun, ANumberOfRanksIsAttestedAsItWas) {
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

// Reading time grows with the size of a file, not with its square.
TEST_F(ForgedRun, LongDocumentsAreReadInTime) {
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
  EXPECT_THAT(o.err, HasSubstr("\"values\" has more entries than a config can have"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

TEST_F(ForgedRun, RowsThatWereNotLoggedAreRefused) {
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
  expect_refused("has {", [](auto& rows) { rows[0]["eval_accuracy"] = 0.99; });
  expect_refused("has {", [](auto& rows) { rows.back()["train_loss"] = 0.1; });
  expect_refused("has {", [](auto& rows) {
    rows.insert(rows.begin(), Json{{"step", 1}, {"loss", 0.1}, {"train_runtime", 1}});
  });
  expect_refused("has {", [](auto& rows) { rows.push_back({{"step", 9}, {"loss", 0.1}}); });
  // Measurements must be numbers.
  for (const auto& [name, is] : std::vector<std::pair<const char*, Json>>{{"time", "certified by an expert"},
                                                                          {"data_wait", {{"accuracy", 0.99}}},
                                                                          {"peak_rss_mb", {1, 2}},
                                                                          {"rank_seconds", {"fast"}},
                                                                          {"memory", {{"accuracy", 0.99}}},
                                                                          {"loss_scale", "high"},
                                                                          {"slowest_rank", {{"name", "none"}}}}) {
    SCOPED_TRACE(name);
    expect_refused("has {", [&](auto& rows) { rows[1][name] = is; });
  }
  for (const auto& [name, is] : std::vector<std::pair<const char*, Json>>{
           {"memory", {{"accuracy", 0.99}}}, {"save_seconds", "few"}, {"cuda_graphs", {{"kept", 1}}}}) {
    SCOPED_TRACE(name);
    expect_refused("has {", [&](auto& rows) { rows.back()[name] = is; });
  }
  expect_refused("has {", [](auto& rows) {
    rows.insert(rows.begin(), Json{{"step", 1}, {"train_loss", "small"}, {"train_runtime", 1}});
  });
  expect_refused("lacks the first 3", [](auto& rows) { rows.erase(rows.begin(), rows.begin() + 3); });
  for (const auto& [says, text] : {std::pair("was incomplete when", jsonl(honest) + "certified by an expert"),
                                   {"a line is not a logged row", jsonl(honest).insert(1, "    ")}}) {
    write_file(metrics, text);
    seal_what_lies_beside();
    const Outcome o = verify({"--steps", "0"});
    EXPECT_EQ(o.code, 3) << o.out;
    EXPECT_THAT(o.out, HasSubstr(std::string("metrics.jsonl: ") + says));
  }
  write_file(metrics, jsonl(honest));
  seal_what_lies_beside();
  // Nothing is logged after the result, unless the run goes on.
  for (const char* more :
       {"{\"step\": 5, \"loss\": 0.1}\n", "{\"step\": 4, \"train_runtime\": 1, \"author\": \"me\"}\n",
        "{\"step\": 4, \"eval_accuracy\": 0.99}", "certified by an expert"}) {
    SCOPED_TRACE(more);
    write_file(metrics, jsonl(honest) + more);
    const Outcome o = verify({"--steps", "0"});
    EXPECT_EQ(o.code, 3) << o.out;
    EXPECT_THAT(o.out, HasSubstr("metrics.jsonl: has "));
  }
}

TEST_F(ForgedRun, RowsAfterTheResultAreThoseOfARunThatGoesOn) {
  train_ok(folder_.path(), config());
  Json longer = config();
  longer["max_steps"] = 7;
  write_file(at("longer.json"), dump_json(longer));
  ASSERT_EQ(qtrain({.words = {"train", at("longer.json").string(), "--stop_after", "6"}}).code, 75);
  const std::string honest = bytes_of(output() / "metrics.jsonl");
  for (const auto& [more, code] : {std::pair("", 0),
                                   {"{\"step\": 7, \"loss\": 0.1}\n", 0},
                                   {"{\"step\": 7, \"eval_acc", 0},
                                   {"{\"step\": 6, \"eval_accuracy\": 0.99}", 3},
                                   {"{\"step\": 6, \"train_runtime\": 1}\n", 3}}) {
    SCOPED_TRACE(more);
    write_file(output() / "metrics.jsonl", honest + more);
    const Outcome o = verify({"--steps", "0"});
    EXPECT_EQ(o.code, code) << o.out;
  }
}

}  // namespace
}  // namespace qtrain::e2e
