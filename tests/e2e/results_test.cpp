// Results of commands go to stdout: as lines of text, also with --quiet, or as one JSON document with --json.
#include <sstream>

#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Files that the commands are tried on.
class World {
 public:
  World() {
    write_untrained_model(path("random"));
    write_file(path("rows.jsonl"), R"({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", )"
                                   R"("content": "ho"}]})"
                                   "\n");
    write_file(path("run.json"), dump_json(tiny_lora_run(path("out"))));
    Json chat = tiny_run(path("chat_out"));
    chat.update({{"model_name_or_path", path("random")},
                 {"dataset_name", path("rows.jsonl")},
                 {"eval_dataset_name", path("rows.jsonl")},
                 {"random_init", true},
                 {"save_strategy", "steps"},
                 {"save_steps", 1},
                 {"max_steps", 1}});
    write_file(path("chat.json"), dump_json(chat));
    qtrain_ok({.words = {path("chat.json")}});
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  /// A model with weights, a tokenizer and a template.
  std::string model() const { return path("chat_out"); }

 private:
  TempFolder folder_;
};

/// A typical call of a command, the text that it prints on stdout, and the keys of its JSON document.
struct Example {
  std::string name;
  std::vector<std::string> words;
  std::string says;
  std::vector<std::string> keys;  ///< of the document; empty if it is a list
};

std::vector<Example> examples(const World& w) {
  const std::string model = w.model(), base = (kGoldens / "lora_llama_all").string(), gguf = w.path("made.gguf");
  return {
      {"train", {"train", w.path("run.json")}, "saved to", {"output_dir", "step", "train_loss"}},
      {"eval", {"eval", w.path("chat.json")}, "eval_loss", {"eval_loss", "perplexity"}},
      {"estimate", {"estimate", w.path("run.json")}, "recomputation", {"memory", "fits"}},
      {"validate", {"validate", w.path("run.json")}, "valid\n", {"valid", "problems"}},
      {"config", {"config", w.path("run.json")}, "learning_rate", {"dialect", "values"}},
      {"reference", {"config"}, "| `learning_rate` |", {"keys"}},
      {"datasets", {"datasets", w.path("")}, "rows.jsonl", {}},
      {"preprocess", {"preprocess", w.path("run.json")}, "training\n", {"tokens", "fingerprint"}},
      {"generate",
       {"generate", "--model", model, "--prompt", "hi", "--max_new_tokens", "2"},
       "\n",
       {"completion", "finish_reason"}},
      {"generate_rows",
       {"generate", "--model", model, "--input", w.path("rows.jsonl"), "--max_new_tokens", "2"},
       "\"completion\"",
       {}},
      {"generate_file",
       {"generate", "--model", model, "--prompt", "hi", "--max_new_tokens", "2", "--output", w.path("answers")},
       "",
       {"output", "rows"}},
      {"tokenize", {"tokenize", "--model", model, "--input", w.path("strings")}, "[", {}},
      {"render", {"render", "--model", model, "--input", w.path("rows.jsonl")}, "\"<|im_start|>", {}},
      {"merge",
       {"merge", "--model", base, "--adapter", base + "/adapter", "--output", w.path("merged"), "--data",
        (kGoldens / "curves/cosine/data.jsonl").string()},
       "merged_eval_loss",
       {"output", "merged_eval_loss", "adapter_eval_loss"}},
      {"quantize",
       {"quantize", "--model", model, "--output", w.path("four_bits")},
       "quantized",
       {"output", "matrices"}},
      {"export", {"export", "--model", model, "--output", gguf}, "exported", {"output", "tensors", "notes"}},
      {"import", {"import", gguf, "--output", w.path("imported")}, "imported", {"output", "parts"}},
      {"inspect", {"inspect", w.path("chat_out/checkpoint-1"), "--verify"}, "recorded hashes", {"kind", "verified"}},
      {"bench", {"bench", "copy/", "--device", "cpu", "--small"}, "of copy", {"device", "results"}},
      {"doctor", {"doctor"}, "processor", {"processor", "memory"}},
  };
}

TEST(Results, GoToStdoutAlsoWithQuiet) {
  const World world;
  write_file(world.path("strings"), "\"a\"\n\"b\"\n");
  for (Example& e : examples(world)) {
    e.words.emplace_back("--quiet");
    const Outcome outcome = qtrain_ok({.words = e.words});
    EXPECT_THAT(outcome.out, HasSubstr(e.says)) << e.name;
    std::istringstream said(outcome.err);
    for (std::string line; std::getline(said, line);) EXPECT_THAT(line, ::testing::StartsWith("warning: ")) << e.name;
  }
}

TEST(Results, AreOneDocumentWithJson) {
  const World world;
  write_file(world.path("strings"), "\"a\"\n\"b\"\n");
  for (Example& e : examples(world)) {
    e.words.emplace_back("--json");
    const Json document = parse_json(qtrain_ok({.words = e.words}).out, e.name);
    EXPECT_EQ(document.is_array(), e.keys.empty()) << e.name;
    for (const std::string& key : e.keys) EXPECT_TRUE(document.contains(key)) << e.name << " " << key;
  }
}

TEST(Results, WithJsonErrorsAreDocumentsToo) {
  struct Bad {
    std::vector<std::string> words;
    int code;
    std::string kind, place;
  };
  const std::string none = "/nowhere/at/all", run = none + "/run.json";
  const TempFolder folder;
  write_file(folder / "run.json", "{\"learning_rat\": 1}");
  std::vector<Bad> all{{{"no_such_command"}, 2, "usage", ""},
                       {{"train", "--no_such_flag"}, 2, "usage", ""},
                       {{"generate", "--model", none}, 2, "usage", ""},
                       {{"bench", "no_such_case", "--device", "cpu", "--small"}, 2, "usage", ""},
                       {{"tokenize", "--model", none}, 3, "input", none},
                       {{"render", "--model", none, "--input", none}, 3, "input", none},
                       {{"datasets", none}, 3, "input", none},
                       {{"inspect", none}, 3, "input", none},
                       {{"import", none, "--output", none}, 3, "input", none},
                       {{"export", "--model", none, "--output", none}, 3, "input", none},
                       {{"quantize", "--model", none, "--output", none}, 3, "input", none},
                       {{"merge", "--model", none, "--adapter", none, "--output", none}, 3, "input", none}};
  for (const char* command : {"train", "eval", "estimate", "config", "preprocess"}) {
    all.push_back({{command, run}, 2, "usage", run});
    all.push_back({{command, (folder / "run.json").string()}, 2, "usage", "run.json"});
  }
  for (Bad& bad : all) {
    bad.words.emplace_back("--json");
    const std::string which = bad.words[0] + " " + bad.words[1];
    const Outcome outcome = qtrain({.words = bad.words});
    EXPECT_EQ(outcome.code, bad.code) << which << outcome.err;
    const Json document = parse_json(outcome.out, which);
    EXPECT_THAT(keys_of(document), ::testing::ElementsAre("error")) << which;
    const Json& error = document.at("error");
    EXPECT_EQ(error.at("kind"), bad.kind) << which;
    EXPECT_EQ(error.at("exit_code"), bad.code) << which;
    EXPECT_THAT(error.at("place").get<std::string>(), HasSubstr(bad.place)) << which;
    EXPECT_THAT(outcome.err, HasSubstr(error.at("cause").get<std::string>())) << which;
    EXPECT_TRUE(error.at("remedy").is_string()) << which;
  }
}

TEST(Results, ThatSayNoEndWithOneDocumentAndTheirCode) {
  const TempFolder folder;
  write_file(folder / "run.json", "{\"learning_rat\": 1}");
  const Outcome invalid = qtrain({.words = {"validate", (folder / "run.json").string(), "--json"}});
  EXPECT_EQ(invalid.code, 2);
  EXPECT_EQ(parse_json(invalid.out, "validate").at("valid"), false);
  Json big = tiny_run(folder / "out");
  big["per_device_train_batch_size"] = 100'000'000;
  big["max_length"] = 64;
  write_file(folder / "big.json", dump_json(big));
  const Outcome large =
      qtrain({.words = {"estimate", (folder / "big.json").string(), "--no_data", "--gpu", "T4", "--json"}});
  EXPECT_EQ(large.code, 4);
  const Json document = parse_json(large.out, "estimate");
  EXPECT_EQ(document.at("fits"), false);
  EXPECT_EQ(document.at("error").at("exit_code"), 4);
}

TEST(Results, OfTheDataAreToldBeforeAndAfterPacking) {
  const TempFolder folder;
  std::string rows;
  for (int i = 0; i < 3; ++i) rows += "{\"input_ids\": [5, 6, 7, 8, 9]}\n";
  write_file(folder / "rows.jsonl", rows);
  Json run = tiny_run(folder / "out");
  run.update({{"dataset_name", (folder / "rows.jsonl").string()},
              {"packing", true},
              {"max_length", 10},
              {"per_device_train_batch_size", 1},
              {"max_steps", 1}});
  write_file(folder / "run.json", dump_json(run));
  EXPECT_THAT(qtrain_ok({.words = {(folder / "run.json").string()}}).err,
              HasSubstr("data: 3 rows, 2 after filtering and packing (15 tokens, "));
}

// An evaluation of many rows, before 100 short steps.
TEST(Results, TheTimeLeftDoesNotCountTheEvaluationBeforeTheFirstStep) {
  const TempFolder folder;
  Json config = tiny_run(folder / "out");
  std::string rows;
  for (int i = 0; i < 100; ++i) rows += bytes_of(config["dataset_name"].get<std::string>());
  write_file(folder / "eval.jsonl", rows);
  config.update({{"eval_dataset_name", (folder / "eval.jsonl").string()},
                 {"per_device_eval_batch_size", 1},
                 {"eval_on_start", true},
                 {"max_steps", 100}});
  const std::string said = train_ok(folder.path(), config).err;
  std::istringstream first(said.substr(said.find("step 1/100")));
  std::string line;
  std::getline(first, line);
  std::int64_t left = 0, part = 0;  // "ETA 1:02:03"
  std::istringstream time(line.substr(line.find("ETA ") + 4));
  for (char colon; time >> part; time >> colon) left = 60 * left + part;
  const double evaluation = history(folder / "out", "eval_loss").front().at("eval_runtime");
  EXPECT_LT(static_cast<double>(left), 50 * evaluation) << line;
}

TEST(Results, BenchWritesItsDocumentWhereItIsTold) {
  const TempFolder folder;
  const Outcome outcome = qtrain_ok(
      {.words = {"bench", "copy/", "--device", "cpu", "--small", "--json", (folder / "bench.json").string()}});
  EXPECT_THAT(outcome.out, HasSubstr("of copy"));
  EXPECT_EQ(read_json(folder / "bench.json").at("results").size(), 2u);
}

}  // namespace
}  // namespace qtrain::e2e
