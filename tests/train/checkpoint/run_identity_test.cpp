// The effect of changing each config key when a run resumes from a checkpoint.
#include "train/checkpoint/run_identity.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "config/fields.h"
#include "config/keys.h"
#include "config/yaml.h"
#include "core/formats/safetensors.h"
#include "core/os/file.h"
#include "tests/core/temp_folder.h"
#include "train/setup/compute.h"
#include "train/setup/model_setup.h"

namespace qtrain {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

const std::string kGolden = QTRAIN_SOURCE_DIR "/tests/golden/data", kModel = kGolden + "/llama_gqa3_tied",
                  kAdapter = kGolden + "/lora_llama_all/adapter";

/// A run of that model, and its identity.
struct OneRun {
  explicit OneRun(const Json& changes = Json::object(), const ComputePlan& compute = {}) {
    Json values{{"model_name_or_path", kModel}, {"use_peft", true}, {"dataset_name", "rows.jsonl"}};
    values.update(changes);
    config = parse_config(values.dump(), "c.json").value;
    setup = set_up_model(compute, training_request(config));
    train.set_fingerprint(1);
    provenance = {{"device", "a processor"},
                  {"files",
                   {{kModel + "/model.safetensors", "w1"},
                    {kModel + "/model.other.safetensors", "o1"},
                    {"/models/one/config.json", "c1"},
                    {"/models/one/tokenizer.json", "t1"},
                    {"/models/one/chat_template.jinja", "j1"}}}};
    if (setup.adapter) provenance["files"][(*setup.adapter / "adapter_model.safetensors").string()] = "a1";
  }
  Json identity() const {
    return run_identity({.config = config,
                         .setup = setup,
                         .train = train,
                         .evaluation = evaluation,
                         .template_date = config.model.template_date.value_or(""),
                         .provenance = provenance,
                         .ranks = static_cast<int>(config.run.nproc)},
                        matmul);
  }

  Config config;
  ModelSetup setup;
  Dataset train, evaluation;
  Json provenance;
  MatmulPrecision matmul = MatmulPrecision::storage;
};

/// The rows of key_changes.yaml by key.
const Json& changes() {
  static const Json kChanges = [] {
    const std::filesystem::path file = QTRAIN_SOURCE_DIR "/tests/train/checkpoint/key_changes.yaml";
    std::string text = read_text(file);
    for (const auto& [name, folder] :
         {std::pair("$model", kModel), std::pair("$adapter", kAdapter), std::pair("$experts", kGolden + "/qwen3_moe")})
      for (std::size_t at = 0; (at = text.find(name, at)) != text.npos;) text.replace(at, std::strlen(name), folder);
    return parse_yaml(text, file.string()).value;
  }();
  return kChanges;
}

TEST(RunIdentity, TheTableOfChangesHasEveryKey) {
  for (const std::string_view key : field_names()) EXPECT_TRUE(changes().contains(key)) << key;
}

TEST(RunIdentity, AnotherValueIsRefusedOrToldByTheNameOfItsKey) {
  for (const auto& [key, change] : changes().items()) {
    const auto expected = value_named<OnResume>(change.at("resume").get<std::string>());
    Json other = change.value("both", Json::object());
    const OneRun was(other);
    other[key] = change.at("value");
    OneRun is(other);
    RunChanges found = run_changes(was.identity(), is.identity());
    using Texts = ::testing::Matcher<std::vector<std::string>>;
    const bool refused = expected == OnResume::refused;
    const bool told = expected == OnResume::update || expected == OnResume::note || expected == OnResume::saved;
    EXPECT_THAT(found.refused, refused ? Texts(Contains(StartsWith(key + " = "))) : Texts(IsEmpty())) << key;
    EXPECT_THAT(found.told, told ? Texts(Contains(StartsWith(key + " "))) : Texts(IsEmpty())) << key;

    is.train.set_fingerprint(2);  // now the rows differ too
    found = run_changes(was.identity(), is.identity());
    const bool named = expected == OnResume::rows || expected == OnResume::saved;
    EXPECT_THAT(found.refused, named ? Texts(ElementsAre(StartsWith(key + " = "))) : Texts(Not(IsEmpty()))) << key;
  }
}

TEST(RunIdentity, RanksMayMakeUpForMicroBatches) {
  const auto changes_to = [](const Json& now) {
    return run_changes(OneRun({{"nproc", 2}, {"gradient_accumulation_steps", 3}}).identity(), OneRun(now).identity());
  };
  const RunChanges same = changes_to({{"nproc", 3}, {"gradient_accumulation_steps", 2}});
  EXPECT_THAT(same.refused, IsEmpty());
  EXPECT_THAT(same.told, ElementsAre("gradient_accumulation_steps 2 (was 3)", "nproc 3 (was 2)"));
  EXPECT_THAT(changes_to({{"nproc", 3}, {"gradient_accumulation_steps", 3}}).refused,
              ElementsAre("nproc = 2, the config says 3"));
  EXPECT_THAT(changes_to({{"nproc", 2}, {"gradient_accumulation_steps", 2}}).refused,
              ElementsAre("gradient_accumulation_steps = 3, the config says 2"));
}

// Ranks that share tokens use the same rows as one rank.
TEST(RunIdentity, RanksThatShareTokensCountOnce) {
  const auto changes_to = [](const Json& now) {
    Json was{{"lora_dropout", 0}, {"nproc", 2}}, is{{"lora_dropout", 0}};
    is.update(now);
    return run_changes(OneRun(was).identity(), OneRun(is).identity());
  };
  const RunChanges same = changes_to({{"nproc", 4}, {"context_parallel_size", 2}});
  EXPECT_THAT(same.refused, IsEmpty());
  EXPECT_THAT(same.told, ElementsAre("nproc 4 (was 2)", "context_parallel_size 2 (was 1)"));
  EXPECT_THAT(changes_to({{"nproc", 2}, {"context_parallel_size", 2}, {"gradient_accumulation_steps", 2}}).refused,
              IsEmpty());
  EXPECT_THAT(changes_to({{"nproc", 2}, {"context_parallel_size", 2}}).refused,
              ElementsAre("context_parallel_size = 1, the config says 2"));
  EXPECT_THAT(changes_to({{"nproc", 4}, {"context_parallel_size", 2}, {"dataloader_drop_last", true}}).refused,
              ElementsAre(StartsWith("dataloader_drop_last")));
  EXPECT_THAT(changes_to({{"nproc", 4}, {"dataloader_drop_last", true}}).refused,
              Contains("nproc = 2, the config says 4"));
}

TEST(RunIdentity, MicroBatchesOfOtherSizesGoOnWithTheSameUpdates) {
  struct Change {
    int size, ranks, accumulation;
    bool drop_last, goes_on;
  };
  for (const Change& c : std::vector<Change>{{1, 2, 6, false, true},
                                             {4, 1, 3, false, true},
                                             {12, 1, 1, false, true},
                                             {1, 4, 3, false, true},
                                             {4, 2, 3, false, false},
                                             {4, 2, 2, false, false},
                                             {4, 1, 3, true, true},  // 4 rows at once, as before
                                             {1, 2, 6, true, false}}) {
    const Json both{{"lora_dropout", 0}, {"dataloader_drop_last", c.drop_last}};
    Json was = both, now = both;
    was.update({{"per_device_train_batch_size", 2}, {"nproc", 2}, {"gradient_accumulation_steps", 3}});
    now.update(
        {{"per_device_train_batch_size", c.size}, {"nproc", c.ranks}, {"gradient_accumulation_steps", c.accumulation}});
    const RunChanges found = run_changes(OneRun(was).identity(), OneRun(now).identity());
    EXPECT_EQ(found.refused.empty(), c.goes_on) << now;
    if (!c.goes_on) continue;
    EXPECT_THAT(found.told, Contains(HasSubstr("last bits may differ"))) << now;
    EXPECT_THAT(found.told, Contains(fmt::format("per_device_train_batch_size {} (was 2)", c.size))) << now;
  }
}

// With drop_last, the rows that are dropped depend on how many ranks share a batch.
TEST(RunIdentity, RanksMakeUpForNothingWhereBatchesAreDropped) {
  const Json both{{"dataloader_drop_last", true}};
  Json was = both, now = both;
  was.update({{"nproc", 2}, {"gradient_accumulation_steps", 3}});
  now.update({{"nproc", 3}, {"gradient_accumulation_steps", 2}});
  EXPECT_THAT(run_changes(OneRun(was).identity(), OneRun(now).identity()).refused,
              Contains("nproc = 2, the config says 3"));
}

TEST(RunIdentity, BothValuesAreNamed) {
  const RunChanges found = run_changes(OneRun({{"lora_alpha", 8}, {"learning_rate", 2e-5}}).identity(),
                                       OneRun({{"lora_alpha", 64}, {"learning_rate", 1e-4}}).identity());
  EXPECT_THAT(found.refused, ElementsAre("lora_alpha = 8.0, the config says 64.0"));
  EXPECT_THAT(found.told, ElementsAre("learning_rate 0.0001 (was 2e-05)"));
}

TEST(RunIdentity, ValuesThatMeanTheSameAreTheSame) {
  const auto expect_same = [](const Json& a, const Json& b) {
    const RunChanges found = run_changes(OneRun(a).identity(), OneRun(b).identity());
    EXPECT_THAT(found.refused, IsEmpty()) << a << b;
    EXPECT_THAT(found.told, IsEmpty()) << a << b;
  };
  expect_same({{"seed", 7}}, {{"seed", 7}, {"data_seed", 7}});
  expect_same({{"optim", "adamw_8bit"}}, {{"optim", "paged_adamw_8bit"}});
  expect_same({{"optim", "sgd"}, {"optim_args", "momentum=0.5,nesterov=true"}},
              {{"optim", "sgd"}, {"optim_args", "nesterov=true, momentum=0.50"}});
  expect_same({{"dtype", "auto"}}, {{"dtype", "float32"}});
  expect_same({{"use_peft", false}, {"lora_alpha", 8}}, {{"use_peft", false}, {"lora_alpha", 64}});
  expect_same({{"bnb_4bit_quant_type", "nf4"}}, {{"bnb_4bit_quant_type", "fp4"}});
  expect_same({{"lora_target_modules", {"v_proj", "q_proj"}}}, {{"lora_target_modules", {"q_proj", "v_proj"}}});
  expect_same({{"lora_target_modules", "all-linear"}},
              {{"lora_target_modules", {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}}});
  expect_same({{"lora_modules_to_save", {"norm", "embed_tokens"}}},
              {{"lora_modules_to_save", {"embed_tokens", "norm"}}});
}

TEST(RunIdentity, OtherFilesAreRefusedByName) {
  const OneRun was;
  const auto changes = [&](const std::string& path, const char* hash, std::uint64_t rows) {
    OneRun is;
    is.provenance["files"][path] = hash;
    is.train.set_fingerprint(rows);
    return run_changes(was.identity(), is.identity());
  };
  const auto refused = [&](const std::string& path, const char* hash, std::uint64_t rows) {
    return changes(path, hash, rows).refused;
  };
  EXPECT_THAT(refused("/models/one/config.json", "c2", 1), IsEmpty()) << "config.json is compared by its values";
  EXPECT_THAT(refused("/models/one/tokenizer.json", "t2", 1), IsEmpty()) << "it gives the same rows";
  EXPECT_THAT(changes("/models/one/tokenizer.json", "t2", 1).told, ElementsAre("a different tokenizer.json"))
      << "but it is saved with the model";
  EXPECT_THAT(refused(kModel + "/model.safetensors", "w2", 1), ElementsAre(HasSubstr("model.safetensors")));
  EXPECT_THAT(refused(kModel + "/model.other.safetensors", "o2", 1), IsEmpty()) << "the file is not read";
  EXPECT_THAT(refused("/models/one/tokenizer.json", "t2", 2), ElementsAre(HasSubstr("a different tokenizer.json")));
  EXPECT_THAT(refused("/models/one/chat_template.jinja", "j2", 2), ElementsAre(HasSubstr("chat_template.jinja")));
  OneRun without;
  without.provenance["files"].erase("/models/one/tokenizer.json");
  without.train.set_fingerprint(2);
  EXPECT_THAT(run_changes(was.identity(), without.identity()).refused, ElementsAre(HasSubstr("tokenizer.json")));
  EXPECT_THAT(refused("/models/one/config.json", "c1", 2), ElementsAre(HasSubstr("those of [\"rows.jsonl\"] have")));
}

TEST(RunIdentity, AnAdaptersWeightsAreCompared) {
  const Json from{{"adapter_name_or_path", kAdapter}};
  OneRun is(from);
  is.provenance["files"][kAdapter + "/adapter_model.safetensors"] = "a2";
  EXPECT_THAT(run_changes(OneRun(from).identity(), is.identity()).refused,
              ElementsAre(HasSubstr("adapter_model.safetensors")));
}

// Shards may have any plain name; other files in the folder are not read.
TEST(RunIdentity, WeightsAreTheFilesThatTheIndexNames) {
  namespace fs = std::filesystem;
  const testing::TempFolder folder;
  fs::copy_file(kModel + "/config.json", folder / "config.json");
  fs::copy_file(kModel + "/model.safetensors", folder / "part.safetensors");
  fs::copy_file(kModel + "/model.safetensors", folder / "model-00009.safetensors");
  Json index{{"weight_map", Json::object()}};
  const SafetensorsReader reader(folder / "part.safetensors");
  for (const auto& [name, tensor] : reader.tensors()) index["weight_map"][name] = "part.safetensors";
  write_file(folder / "model.safetensors.index.json", dump_json(index));
  const auto identity = [&](const char* part, const char* other) {
    OneRun run(Json{{"model_name_or_path", folder.path().string()}});
    run.provenance["files"] = {{(folder / "part.safetensors").string(), part},
                               {(folder / "model-00009.safetensors").string(), other}};
    return run.identity();
  };
  EXPECT_THAT(run_changes(identity("p1", "o1"), identity("p2", "o1")).refused,
              ElementsAre(HasSubstr("part.safetensors of model_name_or_path")));
  EXPECT_THAT(run_changes(identity("p1", "o1"), identity("p1", "o2")).refused, IsEmpty());
}

TEST(RunIdentity, AChatTemplateThatWasMovedIsTheSame) {
  const auto identity = [](const char* path, const char* hash) {
    OneRun run;
    run.config.model.chat_template_path = path;
    run.provenance["files"][path] = hash;
    return run.identity();
  };
  EXPECT_THAT(run_changes(identity("/a/t.jinja", "h1"), identity("/b/t.jinja", "h1")).told, IsEmpty());
  EXPECT_THAT(run_changes(identity("/a/t.jinja", "h1"), identity("/a/t.jinja", "h2")).told,
              ElementsAre("a different t.jinja"));
}

TEST(RunIdentity, TheModelsOwnConfigIsComparedByKey) {
  const OneRun was;
  Json now = was.identity();
  now["model"]["rope_theta"] = 12345;
  EXPECT_THAT(run_changes(was.identity(), now).refused, ElementsAre(HasSubstr("config.json, which now says 12345")));
  now = was.identity();
  now["model"].erase("hidden_size");
  EXPECT_THAT(run_changes(was.identity(), now).refused, ElementsAre(StartsWith("hidden_size = ")));
}

TEST(RunIdentity, AnotherProcessorIsTold) {
  const OneRun was;
  OneRun is;
  is.matmul = MatmulPrecision::bf16;
  is.provenance["device"] = "another processor";
  is.evaluation.set_fingerprint(3);
  const RunChanges found = run_changes(was.identity(), is.identity());
  EXPECT_THAT(found.refused, IsEmpty());
  EXPECT_THAT(found.told,
              ElementsAre("GEMMs in \"bfloat16\" (was \"float32\")",
                          "device \"another processor\" (was \"a processor\")", "different evaluation rows"));
}

TEST(RunIdentity, AKeyThatIsYoungerThanTheCheckpointHadItsDefault) {
  Json saved = OneRun().identity();
  saved["keys"].erase("use_rslora");
  EXPECT_THAT(run_changes(saved, OneRun().identity()).refused, IsEmpty());
  EXPECT_THAT(run_changes(saved, OneRun(Json{{"use_rslora", true}}).identity()).refused,
              ElementsAre("use_rslora = false, the config says true"));
}

ComputePlan on_gpu(int major) {
  return {.device = {DeviceKind::cuda, 0}, .matmul = MatmulPrecision::bf16, .major = major};
}

// The first version of fp8 had neither key: all GEMMs were in FP8, with a scale per matrix.
TEST(RunIdentity, TheFirstVersionOfFp8HadNoDefaultsOfToday) {
  const auto told = [](const Json& now) {
    Json saved = OneRun(Json{{"fp8", true}}, on_gpu(9)).identity();
    for (const char* key : {"fp8_forward", "fp8_recipe"}) saved["keys"].erase(key);
    return run_changes(saved, OneRun(now, on_gpu(9)).identity()).told;
  };
  EXPECT_THAT(told({{"fp8", true}}),
              ElementsAre("fp8_forward false (was true)", "fp8_recipe \"blockwise\" (was \"tensorwise\")"));
  EXPECT_THAT(told({{"fp8", true}, {"fp8_forward", true}, {"fp8_recipe", "tensorwise"}}), IsEmpty());
  Json without = OneRun().identity();
  for (const char* key : {"fp8_forward", "fp8_recipe"}) without["keys"].erase(key);
  EXPECT_THAT(run_changes(without, OneRun().identity()).told, IsEmpty());
}

TEST(RunIdentity, TheRecipeOfFp8IsTheOneOfTheGpu) {
  const Json fp8{{"fp8", true}};
  const auto told = [&](const Json& now, int major) {
    return run_changes(OneRun(fp8, on_gpu(9)).identity(), OneRun(now, on_gpu(major)).identity()).told;
  };
  EXPECT_THAT(told(fp8, 9), IsEmpty());
  EXPECT_THAT(told({{"fp8", true}, {"fp8_recipe", "blockwise"}}, 9), IsEmpty());
  EXPECT_THAT(told(fp8, 10), ElementsAre("fp8_recipe \"tensorwise\" (was \"blockwise\")"));
}

TEST(RunIdentity, OtherScalesOfFrozenWeightsAreRefused) {
  Json blocks{{"fp8", true}, {"load_in_fp8", true}}, one{{"load_in_fp8", true}};
  const auto refused = [](const Json& saved, const Json& now) { return run_changes(saved, now).refused; };
  const Json in_blocks = OneRun(blocks, on_gpu(9)).identity(), as_one = OneRun(one, on_gpu(9)).identity();
  EXPECT_THAT(refused(in_blocks, in_blocks), IsEmpty());
  EXPECT_THAT(refused(in_blocks, as_one),
              ElementsAre("load_in_fp8 had scales \"one per 128 x 128 weights\" and now has \"one per matrix\": "
                          "fp8 and fp8_recipe decide"));
  EXPECT_THAT(refused(as_one, in_blocks),
              ElementsAre(HasSubstr("had scales \"one per matrix\" and now has \"one per 128")));
  EXPECT_THAT(refused(as_one, OneRun(blocks, on_gpu(10)).identity()), IsEmpty()) << "tensorwise has the same scales";
  EXPECT_THAT(refused(in_blocks, OneRun(Json{{"fp8", true}}, on_gpu(9)).identity()),
              ElementsAre("load_in_fp8 = true, the config says false"));
  Json older = as_one;
  older.erase("scales of load_in_fp8");
  EXPECT_THAT(refused(older, as_one), IsEmpty());
  EXPECT_THAT(refused(older, in_blocks), ElementsAre(HasSubstr("had scales \"one per matrix\"")));
}

TEST(RunIdentity, IsRefusedWhereAPartIsMissing) {
  const Json whole = OneRun().identity();
  require_identity(whole, "here");
  for (const auto& [part, value] : whole.items()) {
    Json damaged = whole;
    damaged[part] = 4;
    EXPECT_THROW(require_identity(damaged, "here"), Error) << part;
    damaged.erase(part);
    EXPECT_THROW(require_identity(damaged, "here"), Error) << part;
  }
}

}  // namespace
}  // namespace qtrain
