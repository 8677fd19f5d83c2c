// `qtrain init`: configs for several models and data sets that are valid and learn, and what it refuses.
#include "tests/e2e/init_support.h"

namespace qtrain::e2e {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// The loss of the first and of the last tenth of a short run.
TEST_F(Init, ConfigsOfAllModelsAndDataSetsAreValidAndLearn) {
  write_base_model();
  write_blank_model();
  for (const std::string model : {"llama", "base", "blank"})
    for (const std::string data : {"chats.jsonl", "table.csv", "texts.jsonl"}) {
      SCOPED_TRACE(model + " on " + data);
      fs::remove(folder_ / "config.json");
      const Outcome outcome = init({"--model", model, "--data", data, "--yes", "--json"});
      ASSERT_EQ(outcome.code, 0) << outcome.err;
      const Json made = parse_json(outcome.out, "init");
      EXPECT_EQ(made.at("output"), "config.json");
      EXPECT_THAT(made.at("next"), SizeIs(2));
      EXPECT_GT(made.at("updates"), 10);
      const Outcome validated = run({"validate", "config.json", "--json"});
      EXPECT_EQ(validated.code, 0) << validated.out << validated.err;
      EXPECT_THAT(parse_json(validated.out, "validate").at("warnings"), IsEmpty());

      const std::string output = model + data;
      const Outcome trained = run({"config.json", "output_dir=" + output, "max_steps=60", "num_train_epochs=null",
                                   "logging_steps=6", "save_strategy=no", "load_best_model_at_end=false"});
      ASSERT_EQ(trained.code, 0) << trained.err;
      const std::vector<double> losses = column(history(folder_ / output, "loss"), "loss");
      ASSERT_EQ(losses.size(), 10u);
      EXPECT_LT(losses.back(), 0.95 * losses.front());
    }
}

TEST_F(Init, ChoosesByWhatItSees) {
  ASSERT_EQ(init_chats({"--yes"}).code, 0);
  const Json chats = config();
  EXPECT_EQ(chats.at("preset"), "lora");
  EXPECT_EQ(chats.at("assistant_only_loss"), true);
  EXPECT_EQ(chats.at("eval_split"), 4);
  EXPECT_EQ(chats.at("num_train_epochs"), 10);  // of 36 rows
  EXPECT_EQ(chats.at("max_length"), 64);
  EXPECT_EQ(chats.at("load_best_model_at_end"), true);
  EXPECT_THAT(chats.at("sample_prompts"), SizeIs(2));
  EXPECT_FALSE(chats.contains("eos_token"));

  ASSERT_EQ(init({"--model", "llama", "--data", "table.csv", "--yes", "--overwrite"}).code, 0);
  EXPECT_EQ(config().at("column_mapping"), (Json{{"instruction", "Frage"}, {"output", "Antwort"}}));
  EXPECT_EQ(config().at("completion_only_loss"), true);

  ASSERT_EQ(init({"--model", "llama", "--data", "texts.jsonl", "--yes", "--overwrite"}).code, 0);
  EXPECT_EQ(config().at("preset"), "pretrain");
  EXPECT_EQ(config().at("packing"), true);

  write_base_model();
  ASSERT_EQ(init({"--model", "base", "--data", "chats.jsonl", "--yes", "--overwrite"}).code, 0);
  EXPECT_EQ(config().at("chat_template_path"), "chatml");

  write_blank_model();
  ASSERT_EQ(init({"--model", "blank", "--data", "chats.jsonl", "--yes", "--overwrite"}).code, 0);
  EXPECT_EQ(config().at("random_init"), true);
}

TEST_F(Init, UsesTheEvaluationRowsOfAFolder) {
  fs::create_directories(folder_ / "rows");
  fs::copy_file(folder_ / "chats.jsonl", folder_ / "rows/train.jsonl");
  ASSERT_EQ(init({"--model", "llama", "--data", "rows", "--yes"}).code, 0);
  EXPECT_EQ(config().at("eval_split"), 4);
  fs::copy_file(folder_ / "chats.jsonl", folder_ / "rows/validation.jsonl");
  ASSERT_EQ(init({"--model", "llama", "--data", "rows", "--yes", "--overwrite"}).code, 0);
  EXPECT_EQ(config().at("eval_dataset_name"), "rows");
  EXPECT_FALSE(config().contains("eval_split"));
}

TEST_F(Init, HoldsRowsOutIfThoseForEvaluationHaveOtherColumns) {
  fs::create_directories(folder_ / "rows");
  const auto write = [&](const char* name, const Json& row) {
    std::string lines;
    for (int i = 0; i < 30; ++i) lines += dump_json(row) + "\n";
    write_file(folder_ / "rows" / name, lines);
  };
  write("train.jsonl", {{"question", "a"}, {"context", "b"}, {"answer", "c"}});
  for (const Json& row : {Json{{"question", "a"}, {"answer", "c"}}, Json{{"title", "a"}}}) {
    write("validation.jsonl", row);
    const Outcome outcome = init({"--model", "llama", "--data", "rows", "--yes", "--overwrite"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(config().value("eval_split", 0), 3) << row;
    EXPECT_EQ(config().at("column_mapping").at("input"), "context");
    EXPECT_THAT(outcome.err, HasSubstr("own rows for evaluation are not used: rows/validation.jsonl:1"));
  }
}

TEST_F(Init, TakesTheSplitForFineTuning) {
  fs::create_directories(folder_ / "rows");
  for (const char* name : {"train_sft", "train_gen", "test_sft", "test_gen"})
    fs::copy_file(folder_ / "chats.jsonl", folder_ / "rows" / (std::string(name) + "-00000-of-00001.jsonl"));
  ASSERT_EQ(init({"--model", "llama", "--data", "rows", "--yes"}).code, 0);
  EXPECT_EQ(config().at("dataset_train_split"), "train_sft");
  EXPECT_EQ(config().at("dataset_test_split"), "test_sft");
  EXPECT_EQ(config().at("eval_dataset_name"), "rows");
  EXPECT_EQ(run({"validate", "config.json"}).code, 0);
  ASSERT_EQ(init({"--model", "llama", "--data", "rows", "--yes", "--overwrite", "dataset_train_split=train_gen",
                  "dataset_test_split=test_gen"})
                .code,
            0);
  EXPECT_EQ(config().at("eval_dataset_name"), "rows");
  EXPECT_EQ(config().at("dataset_train_split"), "train_gen");
  EXPECT_EQ(init({"--model", "llama", "--data", "rows", "--yes", "--overwrite", "dataset_train_split=train_gen",
                  "dataset_test_split=none"})
                .code,
            3);
}

TEST_F(Init, AnswersEndWithATokenThatTheModelKnows) {
  Json model = read_json(folder_ / "llama/config.json");
  model["eos_token_id"] = 1;
  write_file(folder_ / "llama/config.json", dump_json(model));
  Json tokenizer = read_json(folder_ / "llama/tokenizer_config.json");
  tokenizer["eos_token"] = "<|im_start|>";
  write_file(folder_ / "llama/tokenizer_config.json", dump_json(tokenizer));
  ASSERT_EQ(init_chats({"--yes"}).code, 0);
  EXPECT_EQ(config().at("eos_token"), "auto");
}

TEST_F(Init, KeepsWhatTheCommandLineGives) {
  const Outcome outcome =
      init_chats({"--yes", "lr=1e-4", "preset=qlora", "seed=7", "max_length=48", "--device", "cpu"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(config().at("learning_rate"), 1e-4);
  EXPECT_EQ(config().at("preset"), "qlora");
  EXPECT_EQ(config().at("max_length"), 48);
  EXPECT_EQ(config().at("seed"), 7);
  EXPECT_EQ(config().at("device"), "cpu");
  const Outcome refused = init_chats({"--yes", "--overwrite", "preset=full", "use_peft=true"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("with preset full"));
}

struct Given {
  std::vector<std::string> words;
  Json chosen;
};

TEST_F(Init, FitsTheRestToWhatTheCommandLineGives) {
  const Json both{{"eval_strategy", "steps"}, {"save_strategy", "steps"}, {"load_best_model_at_end", true}};
  const auto with = [&](const Json& more) {
    Json all = both;
    all.update(more);
    return all;
  };
  for (const auto& [words, chosen] :
       std::vector<Given>{{{"use_peft=false"}, {{"preset", "full"}}},
                          {{"preset=null"}, {{"preset", nullptr}, {"learning_rate", 2e-4}}},
                          {{"load_in_4bit=true"}, {{"preset", "qlora"}}},
                          {{"eval_strategy=steps"}, both},
                          {{"eval_split=6", "load_best_model_at_end=true"}, with({{"eval_split", 6}})},
                          {{"eval_strategy=epoch"}, {{"save_strategy", "epoch"}, {"load_best_model_at_end", true}}},
                          {{"save_strategy=best"}, {{"eval_strategy", "steps"}, {"load_best_model_at_end", true}}},
                          {{"save_strategy=epoch"}, {{"eval_strategy", "epoch"}, {"load_best_model_at_end", true}}},
                          {{"eval_steps=10", "save_steps=50"}, with({{"eval_steps", 10}, {"save_steps", 50}})},
                          {{"eval_strategy=no"}, {{"eval_split", "none"}, {"sample_prompts", "none"}}},
                          {{"eval_steps=10"}, with({{"save_steps", 10}})},
                          {{"save_steps=50"}, with({{"eval_steps", 50}})},
                          {{"save_steps=0.1"}, with({{"eval_steps", 0.1}})},
                          {{"eval_steps=10", "save_steps=15"}, {{"eval_steps", 10}, {"save_steps", 15}}},
                          {{"activation_offloading=true"}, {{"preset", "lora"}}},
                          {{"max_steps=7"}, {{"num_train_epochs", "none"}}},
                          {{"warmup_steps=3", "num_train_epochs=1"}, {{"warmup_ratio", "none"}}},
                          {{"response_template=<|im_start|>assistant\n"}, {{"preset", "lora"}}}}) {
    SCOPED_TRACE(words.front());
    std::vector<std::string> all = words;
    all.insert(all.end(), {"--yes", "--overwrite"});
    const Outcome outcome = init_chats(all);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    for (const auto& [key, value] : chosen.items()) EXPECT_EQ(config().value(key, Json("none")), value) << key;
    const Outcome validated = run({"validate", "config.json"});
    EXPECT_EQ(validated.code, 0) << validated.err;
  }
}

TEST_F(Init, ReadsTheColumnOfTextsThatTheCommandLineGives) {
  write_file(folder_ / "both.jsonl", R"({"text": "one two three", "question": "one", "answer": "two"})"
                                     "\n");
  ASSERT_EQ(init({"--model", "llama", "--data", "both.jsonl", "--yes", "dataset_text_field=text"}).code, 0);
  EXPECT_EQ(config().at("preset"), "pretrain");
  EXPECT_EQ(config().at("dataset_text_field"), "text");
  EXPECT_FALSE(config().contains("completion_only_loss"));
}

TEST_F(Init, CountsTheUpdatesOfTheRun) {
  struct Counted {
    std::vector<std::string> words;
    int updates;
  };
  for (const auto& [words, updates] : std::vector<Counted>{{{"nproc=2"}, 180},
                                                           {{"max_samples=10", "num_train_epochs=3"}, 30},
                                                           {{"num_train_epochs=0.5"}, 18},
                                                           {{"max_steps=7"}, 7},
                                                           {{"gradient_accumulation_steps=8"}, 50},
                                                           {{"per_device_train_batch_size=8"}, 50}}) {
    std::vector<std::string> all = words;
    all.insert(all.end(), {"--yes", "--overwrite", "--json"});
    const Outcome outcome = init_chats(all);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(parse_json(outcome.out, "init").at("updates"), updates) << words.front();
  }
}

TEST_F(Init, RefusesLengthsThatLeaveNothingToLearn) {
  const std::vector<std::pair<std::vector<std::string>, const char*>> cases{
      {{"--yes", "max_length=4"}, "masks or max_length leave nothing to learn from"},
      {{"--yes", "truncation_mode=drop", "max_length=8"}, "all rows are longer than max_length 8"}};
  for (const auto& [words, said] : cases) {
    const Outcome outcome = init_chats(words);
    EXPECT_EQ(outcome.code, 3);
    EXPECT_THAT(outcome.err, HasSubstr(said));
    EXPECT_FALSE(wrote());
  }
}

TEST_F(Init, RefusesIdsOutsideTheVocabulary) {
  write_file(folder_ / "ids.jsonl", "{\"input_ids\": [1, 2, 9999999]}\n");
  const Outcome outcome = init({"--model", "llama", "--data", "ids.jsonl", "--yes"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("9999999"));
  EXPECT_FALSE(wrote());
}

TEST_F(Init, WarnsOfColumnsThatAreNotRead) {
  write_file(folder_ / "rows.jsonl", R"({"question": "a", "choices": ["b", "c"], "answer": "b"})"
                                     "\n");
  const Outcome outcome = init({"--model", "llama", "--data", "rows.jsonl", "--yes"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("warning: the column choices is not read"));
}

// Which files a run reads depends on all that are there.
TEST_F(Init, ReadsNoRowsFromItsOwnConfig) {
  for (const char* name : {"rows", "rows/deep", "texts"}) fs::create_directories(folder_ / name);
  fs::copy_file(folder_ / "chats.jsonl", folder_ / "rows/a.jsonl");
  fs::create_directories(folder_ / "parts/train");
  fs::copy_file(folder_ / "chats.jsonl", folder_ / "parts/train/a.jsonl");
  fs::create_directories(folder_ / "splits");
  fs::copy_file(folder_ / "chats.jsonl", folder_ / "splits/train.jsonl");
  fs::copy_file(folder_ / "chats.jsonl", folder_ / "splits/valid.jsonl");
  fs::create_directories(folder_ / "table");
  fs::copy_file(folder_ / "table.csv", folder_ / "table/a.csv");
  write_file(folder_ / "texts/a.txt", "one two three\n");
  struct Place {
    std::string data, output;
    bool refused;
  };
  for (const auto& [data, output, refused] :
       std::vector<Place>{{"rows", "rows/c.json", true},
                          {"rows", "rows/c.yaml", false},
                          {"rows", "rows/deep/c.json", false},  // is not read, since there are rows above it
                          {"rows/*.json*", "rows/c.json", true},
                          {"rows/*.jsonl", "rows/c.json", false},
                          {"rows/**/*.json*", "rows/deep/c.json", true},
                          {"parts", "parts/c.json", true},  // hides the rows in the folder below
                          {"parts", "parts/train/c.json", true},
                          {"splits", "splits/c.json", false},
                          {"splits", "splits/valid2.json", true},
                          {"table", "table/c.json", true},  // as many files of another format
                          {"texts", "texts/c.txt", true},
                          {".", "config.json", true}}) {
    SCOPED_TRACE(data + " " + output);
    const Outcome outcome = init({"--model", "llama", "--data", data, "--output", output, "--yes"});
    EXPECT_EQ(outcome.code, refused ? 2 : 0) << outcome.err;
    EXPECT_EQ(outcome.err.find("would be read as rows") != std::string::npos, refused) << outcome.err;
    EXPECT_EQ(fs::exists(folder_ / output), !refused);
    fs::remove(folder_ / output);
  }
}

TEST_F(Init, RefusesWhatARunCouldNotWrite) {
  struct Refused {
    std::vector<std::string> words;
    const char* said;
  };
  fs::create_directories(folder_ / "out");
  for (const auto& [words, said] : std::vector<Refused>{{{"output_dir=llama"}, "llama"},
                                                        {{"--output", "out/config.json", "output_dir=out"}, "out"}}) {
    std::vector<std::string> all = words;
    all.push_back("--yes");
    const Outcome outcome = init_chats(all);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(said));
    EXPECT_FALSE(fs::exists(folder_ / "out/config.json"));
  }
}

TEST_F(Init, WritesNothingButTheConfigToAStream) {
  const Outcome outcome = init_chats({"--yes", "--output", "/dev/stdout"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  write_file(folder_ / "config.json", outcome.out);
  EXPECT_EQ(run({"validate", "config.json"}).code, 0);
  EXPECT_EQ(init_chats({"--yes", "--output", "/dev/stdout", "--json"}).code, 2);
}

TEST_F(Init, WritesYamlIfTheNameSaysSo) {
  ASSERT_EQ(init_chats({"--yes", "--output", "run.yaml"}).code, 0);
  EXPECT_EQ(run({"validate", "run.yaml"}).code, 0);
  EXPECT_THAT(read_text(folder_ / "run.yaml"), HasSubstr("  # "));
}

TEST_F(Init, FewRowsAreAllForTraining) {
  for (const int n : {1, 2, 19}) {
    write_rows(n);
    const Outcome outcome = init_chats({"--yes", "--overwrite"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_FALSE(config().contains("eval_split"));
    EXPECT_FALSE(config().contains("eval_strategy"));
    const Outcome validated = run({"validate", "config.json", "--json"});
    EXPECT_EQ(validated.code, 0) << validated.out;
    EXPECT_THAT(parse_json(validated.out, "validate").at("warnings"), IsEmpty()) << n;
  }
}

TEST_F(Init, RefusesWhatItCannotRead) {
  write_file(folder_ / "empty.jsonl", "");
  write_file(folder_ / "other.jsonl", "{\"x\": 1}\n");
  write_file(folder_ / "table.xlsx", "PK");
  struct Refused {
    std::vector<std::string> words;
    int code;
    const char* said;
  };
  for (const auto& [words, code, said] : std::vector<Refused>{
           {{"--model", "llama", "--data", "empty.jsonl"}, 3, "empty.jsonl"},
           {{"--model", "llama", "--data", "other.jsonl"}, 3, "unknown row shape"},
           {{"--model", "llama", "--data", "nothing.jsonl"}, 3, "nothing.jsonl"},
           {{"--model", "llama", "--data", "table.xlsx"}, 3, "Save it as CSV"},
           {{"--model", "nothing", "--data", "chats.jsonl"}, 3, "nothing"},
           {{"--model", "llama"}, 2, "--data"},
           {{"--data", "chats.jsonl"}, 2, "--model"},
           {{"--model", "llama", "--data", "chats.jsonl", "no_such_key=1"}, 2, "no_such_key"},
           {{"--model", "llama", "--data", "chats.jsonl", "model_name_or_path=base"}, 2, "which --model names"},
           {{"--model", "llama", "--data", "chats.jsonl", "train_file=texts.jsonl"}, 2, "which --data names"},
           {{"--model", "llama", "--data", "chats.jsonl", "config.json"}, 2, "unexpected argument"},
           {{"--model", "llama", "--data", "chats.jsonl", "--output", "no/folder.json"}, 6, "no/folder.json"},
           {{"--model", "llama", "--data", "chats.jsonl", "--output", "chats.jsonl", "--overwrite"},
            2,
            "chats.jsonl"}}) {
    const Outcome outcome = init(words);
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(said));
    EXPECT_FALSE(wrote());
  }
}

TEST_F(Init, NeverOverwritesUnlessAsked) {
  ASSERT_EQ(init_chats({"--yes"}).code, 0);
  const std::string before = bytes_of(folder_ / "config.json");
  const Outcome again = init_chats({"--yes", "seed=1"});
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.err, HasSubstr("--overwrite"));
  EXPECT_EQ(bytes_of(folder_ / "config.json"), before);
  EXPECT_EQ(init_chats({"--yes", "seed=1", "--overwrite"}).code, 0);
  EXPECT_EQ(config().at("seed"), 1);
}

TEST_F(Init, WithoutATerminalAsksNothing) {
  const Outcome outcome = init_chats({});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(wrote());
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("wrote config.json"), HasSubstr("  qtrain config.json\n"),
                                 HasSubstr("  qtrain chat --model llama --adapter output\n")));
  EXPECT_THAT(outcome.err, Not(HasSubstr("Enter keeps it")));
}

TEST_F(Init, NamesWithControlCharactersStayNames) {
  const std::string name = "a\n\"seed\": 9,\x1b[2J.jsonl";
  fs::copy_file(folder_ / "chats.jsonl", folder_ / name);
  const Outcome outcome = init({"--model", "llama", "--data", name, "--yes"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err.find('\x1b'), std::string::npos);
  EXPECT_EQ(config().at("dataset_name"), name);
  EXPECT_FALSE(config().contains("seed"));
  write_file(folder_ / "columns.jsonl",
             "{\"question\": \"a\", \"answer\": \"b\", \"x\\n\\\"seed\\\": 9, \\u001b[2J\": 1}\n");
  const Outcome columns = init({"--model", "llama", "--data", "columns.jsonl", "--yes", "--overwrite"});
  ASSERT_EQ(columns.code, 0) << columns.err;
  EXPECT_EQ(columns.err.find('\x1b'), std::string::npos);
  EXPECT_FALSE(config().contains("seed"));
}

TEST_F(Init, MeasuresWithTune) {
  const Outcome outcome = init_chats({"--yes", "--tune", "max_samples=24"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(run({"validate", "config.json"}).code, 0);
}

}  // namespace
}  // namespace qtrain::e2e
