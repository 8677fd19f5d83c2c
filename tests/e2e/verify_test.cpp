/// `verify` and `reproduce` check a run against its records.
#include <map>
#include <set>

#include "tests/e2e/verified_run.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Verify : public VerifiedRun {
 protected:
  void SetUp() override {
    VerifiedRun::SetUp();
    train_ok(folder_.path(), config());
  }
  Json statement() const {
    const fs::path file = at("statement.json");
    const Outcome o = verify({"--steps", "4", "--statement", file.string()});
    EXPECT_EQ(o.code, 0) << o.out << o.err;
    return read_json(file);
  }
};

TEST_F(Verify, AnHonestRunHolds) {
  const Json found = parse_json(verify({"--steps", "4", "--json"}).out, "stdout");
  EXPECT_EQ(found["holds"], true);
  EXPECT_EQ(found["redone"].size(), 2u) << "steps 1 and 2, and 3 and 4";
  for (const Json& check : found["checks"]) EXPECT_EQ(check["holds"], true) << check;
  for (const auto& entry : fs::directory_iterator(folder_.path()))
    EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr("qtrain-verify")));
}

TEST_F(Verify, OnlyHashesWithoutSteps) {
  const Outcome o = verify({"--steps", "0"});
  EXPECT_EQ(o.code, 0) << o.out;
  EXPECT_THAT(o.out, Not(HasSubstr("steps")));
}

TEST_F(Verify, TheStepsThatLeadToTheResultAreAmongThem) {
  const Json found = parse_json(verify({"--steps", "1", "--json"}).out, "stdout");
  ASSERT_EQ(found["redone"].size(), 2u) << "those that lead to the result, and a stretch that was chosen";
  EXPECT_EQ(found["redone"][0], Json({{"first", 3}, {"last", 4}}));
}

/// Members of the in-toto and SLSA messages, by their JSON names (protos/in_toto_attestation of
/// github.com/in-toto/attestation): a strict reader accepts no others.
const std::map<std::string, std::set<std::string>> kMembers{
    {"", {"_type", "subject", "predicateType", "predicate"}},
    {"/subject/*", {"name", "uri", "digest", "content", "downloadLocation", "mediaType", "annotations"}},
    {"/predicate", {"buildDefinition", "runDetails"}},
    {"/predicate/buildDefinition", {"buildType", "externalParameters", "internalParameters", "resolvedDependencies"}},
    {"/predicate/buildDefinition/resolvedDependencies/*",
     {"name", "uri", "digest", "content", "downloadLocation", "mediaType", "annotations"}},
    {"/predicate/runDetails", {"builder", "metadata", "byproducts"}},
    {"/predicate/runDetails/builder", {"id", "version", "builderDependencies"}},
    {"/predicate/runDetails/metadata", {"invocationId", "startedOn", "finishedOn"}},
    {"/predicate/runDetails/builder/builderDependencies/*",
     {"name", "uri", "digest", "content", "downloadLocation", "mediaType", "annotations"}},
    {"/predicate/runDetails/byproducts/*",
     {"name", "uri", "digest", "content", "downloadLocation", "mediaType", "annotations"}}};

void expect_members(const Json& value, const std::string& place) {
  if (value.is_array())
    for (const Json& part : value) expect_members(part, place + "/*");
  const auto members = kMembers.find(place);
  if (!value.is_object() || members == kMembers.end()) return;
  for (const auto& [key, part] : value.items()) {
    EXPECT_TRUE(members->second.contains(key)) << key << " in " << place;
    expect_members(part, place + "/" + key);
  }
}

TEST_F(Verify, AStatementHasTheFieldsOfItsForm) {
  const Json s = statement();
  EXPECT_EQ(s["_type"], "https://in-toto.io/Statement/v1");
  EXPECT_EQ(s["predicateType"], "https://slsa.dev/provenance/v1");
  expect_members(s, "");
}

TEST_F(Verify, AStatementBindsWhatTheRunWasMadeOf) {
  const Json s = statement();
  std::map<std::string, std::string> subjects, inputs;
  for (const Json& r : s["subject"]) subjects[r["name"]] = r["digest"]["sha256"];
  for (const Json& r : s["predicate"]["buildDefinition"]["resolvedDependencies"])
    inputs[fs::path(r["name"]).filename()] = r["digest"]["sha256"];
  const Json files = read_json(output() / "manifest.json")["files"];
  for (const auto& [name, file] : files.items()) EXPECT_EQ(subjects[name], file["sha256"]) << name;
  EXPECT_EQ(inputs["rows.jsonl"], sha256_of_file(rows()));
  EXPECT_EQ(inputs["config.json"], sha256_of_file(model() / "config.json"));
  EXPECT_EQ(inputs["tokenizer.json"], sha256_of_file(model() / "tokenizer.json"));
  EXPECT_EQ(inputs["qtrain_training_data"].size(), 64u);
  const Json &of = s["predicate"]["buildDefinition"], &details = s["predicate"]["runDetails"];
  EXPECT_EQ(of["externalParameters"]["seed"], 42);
  EXPECT_FALSE(of["externalParameters"].contains("output_dir")) << "nothing depends on it";
  EXPECT_EQ(of["internalParameters"]["qtrain_ranks"], 1);
  EXPECT_EQ(details["byproducts"][0]["annotations"]["qtrain_stepsDoneAgain"].size(), 2u);
}

TEST_F(Verify, AStatementNamesTheProgramOfTheRun) {
  const std::string own = sha256_of_file(program()), other(64, 'a');
  Json by = statement()["predicate"]["runDetails"]["builder"]["builderDependencies"][0];
  EXPECT_EQ(by["digest"]["sha256"], own);
  EXPECT_EQ(by["annotations"]["qtrain_isProgramOfVerification"], true);
  change_text(output() / "resolved_config.json", own, other);
  Json results = read_json(output() / "train_results.json");
  results["resolved_config_sha256"] = sha256_of_file(output() / "resolved_config.json");
  write_document(output() / "train_results.json", results);
  seal(output());
  const Json details = statement()["predicate"]["runDetails"];
  by = details["builder"]["builderDependencies"][0];
  EXPECT_EQ(by["digest"]["sha256"], other);
  EXPECT_EQ(by["annotations"]["qtrain_isProgramOfVerification"], false) << "so its hash is only claimed";
  EXPECT_EQ(details["byproducts"][0]["digest"]["sha256"], own);
}

TEST_F(Verify, AStatementNamesTheValuesOfEarlierSteps) {
  EXPECT_FALSE(statement()["predicate"]["buildDefinition"]["internalParameters"].contains("qtrain_earlierValues"));
  Json longer = config();
  longer.update({{"max_steps", 6}, {"learning_rate", 0.001}});
  train_ok(folder_.path(), longer);
  const Json of = statement()["predicate"]["buildDefinition"];
  EXPECT_EQ(of["externalParameters"]["learning_rate"], 0.001);
  const Json earlier = of["internalParameters"]["qtrain_earlierValues"];
  ASSERT_EQ(earlier.size(), 2u) << earlier;
  EXPECT_EQ(earlier[0]["untilStep"], 2);
  EXPECT_EQ(earlier[1]["untilStep"], 4);
  for (const Json& e : earlier) EXPECT_EQ(e["values"]["learning_rate"], 0.005) << e;
}

// A later start has replaced the config with which the result was made by its own, which may contain anything.
TEST_F(Verify, NoStatementIsAboutAResultThatARunHasGoneOnBehind) {
  Json longer = config();
  longer.update({{"max_steps", 8}, {"learning_rate", 0.001}});
  write_file(at("longer.json"), dump_json(longer));
  ASSERT_EQ(qtrain({.words = {at("longer.json").string(), "--stop_after", "5"}, .folder = folder_.path()}).code, 75);
  EXPECT_EQ(verify().code, 0);
  const Outcome o = verify({"--steps", "100", "--statement", at("s.json").string()});
  EXPECT_EQ(o.code, 2) << o.out;
  EXPECT_THAT(o.err, HasSubstr("--statement"));
  EXPECT_FALSE(fs::exists(at("s.json")));
}

// The environment is that of a pod or a job step; the repeated steps must not become a rank of what runs there.
TEST_F(Verify, AVerificationTakesNoPlaceAmongRanks) {
  const std::string port = "MASTER_PORT=1", address = "MASTER_ADDR=127.0.0.1";
  for (const std::vector<std::string>& there :
       {std::vector<std::string>{"RANK=1", "WORLD_SIZE=2", address, port},
        {"RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=0", address, port},
        {"SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2", "SLURM_LOCALID=0", address, port},
        {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=0", address, port}}) {
    const Outcome o = qtrain({.words = {"verify", output().string(), "--scratch", folder_.path().string()},
                              .folder = folder_.path(),
                              .environment = there});
    EXPECT_EQ(o.code, 0) << there[0] << o.out << o.err;
  }
}

// Exit code 3 means that a run does not pass.
TEST_F(Verify, TheFolderForTemporaryFilesIsAboutTheFolderOfTheUser) {
  fs::create_directory(at("tmp"));
  const auto verify_in = [&](const char* temporary) {
    return qtrain({.words = {"verify", output().string()}, .folder = at("tmp"), .environment = {temporary}});
  };
  EXPECT_EQ(verify_in("TMPDIR=.").code, 0) << "steps are done again in another folder";
  for (const char* bad : {"TMPDIR=/nowhere", "TMPDIR="}) {
    const Outcome o = verify_in(bad);
    EXPECT_EQ(o.code, 6) << bad << o.err;
    EXPECT_THAT(o.err, HasSubstr("--scratch"));
  }
}

TEST_F(Verify, AStatementIsAboutSteps) {
  const Outcome o = verify({"--steps", "0", "--statement", at("s.json").string()});
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, HasSubstr("--statement"));
}

TEST_F(Verify, WhatIsNoRunIsRefused) {
  EXPECT_THAT(qtrain({.words = {"verify", model().string()}}).err, HasSubstr("no resolved_config.json"));
  write_file(model() / "resolved_config.json", R"({"run": 7})");
  const Outcome o = qtrain({.words = {"verify", model().string()}});
  EXPECT_EQ(o.code, 3);
  EXPECT_THAT(o.err, HasSubstr("\"run\" is missing or has the wrong type"));
}

TEST_F(Verify, AReproducedRunHasTheSameWeights) {
  const fs::path again = folder_ / "again";
  const Outcome o = qtrain_ok({.words = {"reproduce", output().string(), "--output", again.string()}});
  EXPECT_THAT(o.err, HasSubstr("the weights are bit for bit those of " + output().string()));
  EXPECT_EQ(bytes_of(again / "model.safetensors"), bytes_of(output() / "model.safetensors"));
  EXPECT_EQ(qtrain({.words = {"reproduce", output().string(), "--output", again.string()}}).code, 2) << "it is taken";
  EXPECT_EQ(verify_of(again).code, 0);
  change_text(model() / "config.json", "10000.0", "10001.0");
  const Outcome changed = qtrain({.words = {"reproduce", output().string(), "--output", (folder_ / "b").string()}});
  EXPECT_EQ(changed.code, 3);
  EXPECT_THAT(changed.err, HasSubstr("config.json"));
}

// The author of a run must not decide where it writes.
TEST_F(Verify, AReproducedRunWritesIntoItsFolderAlone) {
  const fs::path resolved = output() / "resolved_config.json", elsewhere = at("elsewhere");
  Json json = read_json(resolved);
  json["values"]["token_cache_dir"] = {{"value", elsewhere.string()}, {"origin", "config.json:1"}};
  json["values"]["token_cache_gb"] = {{"value", 0.001}, {"origin", "config.json:1"}};
  json["values"]["prometheus_port"] = {{"value", 1}, {"origin", "config.json:1"}};
  write_document(resolved, json);
  qtrain_ok({.words = {"reproduce", output().string(), "--output", at("again").string()}});
  EXPECT_FALSE(fs::exists(elsewhere));
}

// An interrupted start leaves a file of this name, which the next start replaces.
TEST_F(Verify, AReproducedRunKeepsNotesOfTheUser) {
  const auto reproduce = [&] {
    return qtrain({.words = {"reproduce", output().string(), "--output", at("again").string()}});
  };
  fs::create_directory(at("again"));
  for (const char* notes : {"mine", "{}", "{\"dialect\": \"hf\", \"output_dir\": \"elsewhere\"}"}) {
    write_file(at("again/reproduce.json"), notes);
    const Outcome o = reproduce();
    EXPECT_EQ(o.code, 2) << o.err;
    EXPECT_EQ(bytes_of(at("again/reproduce.json")), notes);
  }
  write_file(at("again/reproduce.json"), dump_json({{"dialect", "hf"}, {"output_dir", at("again").string()}}));
  EXPECT_EQ(reproduce().code, 0);
}

TEST_F(Verify, OtherWeightsAreNotCalledTheSame) {
  Json manifest = read_json(output() / "manifest.json");
  manifest["files"].erase("model.safetensors");
  write_document(output() / "manifest.json", manifest);
  seal(output());
  fs::resize_file(output() / "model.safetensors", 100);
  const Outcome o = qtrain_ok({.words = {"reproduce", output().string(), "--output", at("again").string()}});
  EXPECT_THAT(o.err, HasSubstr("model.safetensors differs from that of"));
}

TEST_F(Verify, ARunStopsAfterTheStepThatIsNamed) {
  Json part = config();
  part["output_dir"] = (folder_ / "part").string();
  write_file(folder_ / "part.json", dump_json(part));
  const std::string file = (folder_ / "part.json").string();
  EXPECT_EQ(qtrain({.words = {file, "--stop_after", "3"}}).code, 75);
  EXPECT_TRUE(fs::exists(folder_ / "part/checkpoint-3/manifest.json"));
  qtrain_ok({.words = {file}});
  EXPECT_EQ(bytes_of(folder_ / "part/model.safetensors"), bytes_of(output() / "model.safetensors"));
  EXPECT_EQ(qtrain({.words = {file, "--stop_after", "0"}}).code, 2);
}

}  // namespace
}  // namespace qtrain::e2e
