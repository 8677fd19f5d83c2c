// tokenize, render, inspect, config, help: text in, text out.
#include <fmt/format.h>

#include "core/build.h"
#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> with(std::vector<std::string> words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(Tokenize, GoesBothWaysFromAFileAndFromStandardInput) {
  const TempFolder folder;
  const std::vector<std::string> words{"tokenize", "--model", kChatml.string()};
  const std::string strings = "\"hello world\"\n\"<|im_start|>a\\nb \\u00e9\"\n\n\"\"\n";
  const Outcome from_input = qtrain_ok({.words = words, .input = strings});
  write_file(folder / "strings", strings);
  EXPECT_EQ(qtrain_ok({.words = with(words, {"--input", (folder / "strings").string()})}).out, from_input.out);
  const Outcome back = qtrain_ok({.words = with(words, {"--decode"}), .input = from_input.out});
  EXPECT_EQ(back.out, "\"hello world\"\n\"<|im_start|>a\\nb \u00e9\"\n\"\"\n");
  EXPECT_EQ(qtrain_ok({.words = with(words, {"--decode", "--no_special"}), .input = "[1]\n"}).out, "\"\"\n");
}

TEST(Tokenize, RefusesBadLinesAndIds) {
  const std::vector<std::string> words{"tokenize", "--model", kChatml.string()};
  const Outcome id = qtrain({.words = with(words, {"--decode"}), .input = "[1]\n[1, 400]\n"});
  EXPECT_EQ(id.code, 3);
  EXPECT_THAT(id.err, AllOf(HasSubstr("standard input:2"), HasSubstr("400")));
  for (const char* ids : {"[-1]\n", "[99999999999999999999]\n", "[1.5]\n", "\"a\"\n", "[1\n"})
    EXPECT_EQ(qtrain({.words = with(words, {"--decode"}), .input = ids}).code, 3) << ids;
  const Outcome line = qtrain({.words = words, .input = "\"a\"\nplain\n"});
  EXPECT_EQ(line.code, 3);
  EXPECT_THAT(line.err, HasSubstr("standard input:2"));
  EXPECT_EQ(qtrain({.words = with(words, {"--input", "/nowhere/at/all"})}).code, 3);
  EXPECT_EQ(qtrain({.words = {"tokenize", "--model", kGoldens.string()}}).code, 3);
}

/// Encodes the last of `count` added tokens.
Outcome with_added_tokens(const fs::path& folder, int count) {
  std::string json = read_text(kChatml / "tokenizer.json"), tokens;
  const auto list = json.find('[', json.find("\"added_tokens\""));
  for (int i = 0; i < count; ++i)
    tokens += fmt::format(R"({{"id": {}, "content": "<|extra_{}|>", "single_word": false, "lstrip": false, )"
                          R"("rstrip": false, "normalized": false, "special": true}},)",
                          1000 + i, i);
  write_file(folder / "tokenizer.json", json.insert(list + 1, tokens));
  const Outcome run = qtrain_ok(
      {.words = {"tokenize", "--model", folder.string()}, .input = fmt::format("\"<|extra_{}|>\"\n", count - 1)});
  EXPECT_EQ(Json::parse(run.out).size(), 1u);
  return run;
}

TEST(Tokenize, HoldsManyAddedTokensInLittleMemoryAndLinearTime) {
  const TempFolder folder;
  constexpr int kFew = 50'000, kTimes = 8;
  const Outcome few = with_added_tokens(folder.path(), kFew), many = with_added_tokens(folder.path(), kFew * kTimes);
  const bool counts = !kAddressSanitizer && !kThreadSanitizer;  // sanitizers take memory of their own
  EXPECT_LT(counts ? many.peak_kib : 0, 200 * 1024);            // 121 MiB; with the file as a document: 500 MiB
  EXPECT_LT(many.cpu_seconds, 3 * kTimes * few.cpu_seconds) << few.cpu_seconds << " s for the few";
}

TEST(Tokenize, NamesFileAndKeyOfAValueOfAnotherType) {
  const TempFolder folder;
  Json json = read_json(kChatml / "tokenizer.json");
  json["pre_tokenizer"] = {{"type", "ByteLevel"}, {"use_regex", 5}};
  write_file(folder / "tokenizer.json", json.dump());
  const Outcome run = qtrain({.words = {"tokenize", "--model", folder.path().string()}, .input = "\"a\"\n"});
  EXPECT_EQ(run.code, 3);
  EXPECT_THAT(run.err, AllOf(HasSubstr("tokenizer.json: pre_tokenizer.use_regex: must be true or false, not 5"),
                             Not(HasSubstr("json.exception"))));
}

TEST(Datasets, ListsWhatThereIsToTrainOn) {
  const TempFolder folder;
  write_file(folder / "rows.csv", "text\none\ntwo\n");
  write_file(folder / "bad.jsonl", "{\n");
  const Outcome text = qtrain_ok({.words = {"datasets", folder.path().string()}});
  EXPECT_THAT(text.out, AllOf(HasSubstr("bad.jsonl"), HasSubstr("cannot be read: bad.jsonl:1"), HasSubstr("2 rows")));
  const Json json = Json::parse(qtrain_ok({.words = {"datasets", folder.path().string(), "--json"}}).out);
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[0]["readable"], false);
  EXPECT_EQ(json[1]["shape"], "text");
  EXPECT_EQ(json[1]["columns"], Json::array({"text"}));
  EXPECT_EQ(qtrain({.words = {"datasets", "/nowhere/at/all"}}).code, 3);
}

TEST(Render, WritesWhatTheTemplateSays) {
  const TempFolder folder;
  const fs::path rows = folder / "rows.jsonl";
  write_file(rows, R"({"messages": [{"role": "user", "content": "hi"}], "enable_thinking": true})"
                   "\n");
  const std::vector<std::string> words{"render", "--model", kChatml.string(), "--input", rows.string()};
  EXPECT_EQ(qtrain_ok({.words = words}).out, R"("<|im_start|>user\nhi<|im_end|>\n")"
                                             "\n");
  EXPECT_EQ(qtrain_ok({.words = with(words, {"--add_generation_prompt"})}).out,
            R"("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>")"
            "\n");
  write_file(rows, "{\"text\": \"a\"}\n");
  const Outcome outcome = qtrain({.words = words});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("rows.jsonl:1"));
}

TEST(Render, ReadsRowsAsTrainingDoes) {
  const TempFolder folder;
  const fs::path rows = folder / "rows.jsonl";
  const std::string talk = R"([{"role":"user","content":"hi"},{"role":"assistant","content":"yo"}])",
                    text = R"(<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nyo<|im_end|>\n)";
  const std::pair<std::string, std::string> cases[] = {
      {R"({"messages":)" + talk + "}", text},
      {R"({"conversations":[{"from":"human","value":"hi"},{"from":"gpt","value":"yo"}]})", text},
      {R"({"instruction":"hi","output":"yo"})", text},
      {R"({"input":"hi","output":"yo"})", text},
      {R"({"prompt":[{"role":"user","content":"hi"}],"completion":[{"role":"assistant","content":"yo"}]})", text},
      {R"({"messages":)" + talk + R"(,"tools":"[{\"name\":\"f\"}]"})", R"(<|im_start|>system f<|im_end|>\n)" + text},
      {R"({"messages":)" + talk + R"(,"tools":["{\"name\":\"f\"}"]})", R"(<|im_start|>system f<|im_end|>\n)" + text},
  };
  Json config = tiny_run(folder / "out");
  write_untrained_model(folder / "model");
  config.update({{"model_name_or_path", (folder / "model").string()}, {"dataset_name", rows.string()}});
  write_file(folder / "run.json", dump_json(config));
  for (const auto& [row, expected] : cases) {
    write_file(rows, row + "\n");
    const std::string line = "\"" + expected + "\"\n";
    EXPECT_EQ(qtrain_ok({.words = {"render", "--model", kChatml.string(), "--input", rows.string()}}).out, line) << row;
    EXPECT_EQ(qtrain_ok({.words = {"render", (folder / "run.json").string()}}).out, line) << row;
  }
  write_file(rows, R"({"messages":[{"role":"user","content":"hi"}],"chat_template_kwargs":{"enable_thinking":true}})");
  EXPECT_THAT(
      qtrain_ok({.words = {"render", "--model", kChatml.string(), "--input", rows.string(), "--add_generation_prompt"}})
          .out,
      HasSubstr("<think>"));
}

TEST(Render, OfAConfigGivesTheTextOfTrainingRows) {
  const TempFolder folder;
  const fs::path rows = folder / "rows.jsonl";
  write_untrained_model(folder / "model");
  const auto render = [&](const std::string& lines, const Json& change, const std::vector<std::string>& more = {}) {
    write_file(rows, lines);
    Json config = tiny_run(folder / "out");
    config.update({{"model_name_or_path", (folder / "model").string()}, {"dataset_name", rows.string()}});
    config.update(change);
    write_file(folder / "run.json", dump_json(config));
    return qtrain({.words = with({"render", (folder / "run.json").string()}, more)});
  };
  const struct {
    const char* row;
    Json change;
    std::string text;
  } cases[] = {
      {R"({"text":"a"})", {}, "\"a<|im_end|>\"\n"},
      {R"({"prompt":"q ","completion":"a"})", {}, "\"q a<|im_end|>\"\n"},
      {R"({"q":"q ","r":"a"})", {{"column_mapping", {{"prompt", "q"}, {"completion", "r"}}}}, "\"q a<|im_end|>\"\n"},
      {R"({"talk":[{"who":"user","says":"q"}]})",
       {{"column_mapping", {{"messages", "talk"}}},
        {"message_property_mappings", {{"role", "who"}, {"content", "says"}}}},
       R"("<|im_start|>user\nq<|im_end|>\n")"
       "\n"},
      {R"({"messages":[{"role":"user","content":"q"}]})",
       {{"chat_template_path", "{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}"}},
       "\"q<|im_end|>\"\n"},
  };
  for (const auto& c : cases) {
    const Outcome outcome = render(c.row, c.change.is_null() ? Json::object() : c.change);
    EXPECT_EQ(outcome.out, c.text) << c.row << outcome.err;
  }
  write_file(folder / "other.jsonl", "{\"text\":\"b\"}\n");
  EXPECT_EQ(render("{\"text\":\"a\"}", Json::object(), {"--input", (folder / "other.jsonl").string()}).out,
            "\"b<|im_end|>\"\n");
  EXPECT_EQ(render("{\"text\":\"a\"}\n{\"text\":\"b\"}", Json::object(), {"dataset_train_split=train[1:]"}).out,
            "\"b<|im_end|>\"\n");
  EXPECT_EQ(render("{\"text\":\"a\"}", Json::object(), {"--model", kChatml.string()}).code, 2);
  const Outcome wrong = render("{\"text\":3}", Json::object());
  EXPECT_EQ(wrong.code, 3);
  EXPECT_THAT(wrong.err, HasSubstr("rows.jsonl:1"));
}

TEST(Inspect, TellsEachKindInJson) {
  const TempFolder folder;
  Json config = tiny_lora_run(folder / "out");
  config.update({{"save_strategy", "steps"}, {"save_steps", 4}});
  train_ok(folder.path(), config);
  const auto kind = [](const fs::path& path) {
    const Json report = parse_json(qtrain_ok({.words = {"inspect", path.string(), "--json"}}).out, "stdout");
    return report.at("kind").get<std::string>();
  };
  EXPECT_EQ(kind(kGoldens / "llama_gqa3_tied"), "model folder");
  EXPECT_EQ(kind(kGoldens / "llama_f16_sharded"), "model folder");
  EXPECT_EQ(kind(kGoldens / "lora_llama_all/adapter"), "adapter");
  EXPECT_EQ(kind(folder / "out/checkpoint-4"), "checkpoint");
  EXPECT_EQ(kind(folder / "out/adapter_model.safetensors"), "safetensors file");
  EXPECT_EQ(kind(QTRAIN_SOURCE_DIR "/tests/convert/goldens/gguf/smollm.gguf"), "GGUF file");
  EXPECT_THAT(qtrain_ok({.words = {"inspect", (kGoldens / "llama_gqa3_tied").string()}}).out, HasSubstr("llama"));
  EXPECT_EQ(qtrain({.words = {"inspect", "/nowhere/at/all"}}).code, 3);
  write_file(folder / "notes.txt", "hello");
  EXPECT_EQ(qtrain({.words = {"inspect", (folder / "notes.txt").string()}}).code, 3);
}

TEST(ConfigCommand, TellsValuesAndWhereTheyComeFrom) {
  const TempFolder folder;
  write_file(folder / "run.json", "{\n  // a comment\n  \"lora_r\": 4\n}\n");
  const Outcome outcome = qtrain_ok(
      {.words = {"config", (folder / "run.json").string(), "--json", "learning_rate=0.5"}, .folder = folder.path()});
  const Json values = parse_json(outcome.out, "stdout").at("values");
  EXPECT_EQ(values.at("lora_r").at("value"), 4);
  EXPECT_THAT(values.at("lora_r").at("origin").get<std::string>(), HasSubstr("run.json:3"));
  EXPECT_EQ(values.at("max_grad_norm").at("value"), 1.0);
  EXPECT_THAT(qtrain_ok({.words = {"config"}}).out, HasSubstr("gradient_accumulation_steps"));
}

TEST(Train, JsonLeavesOneDocumentOnStdout) {
  const TempFolder folder;
  const Outcome outcome = train_ok(folder.path(), tiny_run(folder / "out"), {"--json"});
  const Json results = parse_json(outcome.out, "stdout");
  EXPECT_EQ(results.at("step"), 8);
  EXPECT_EQ(results.at("train_loss"), read_json(folder / "out/train_results.json").at("train_loss"));
  EXPECT_THAT(train_ok(folder.path(), tiny_run(folder / "again"), {"--quiet"}).out,
              ::testing::StartsWith("done: 8 steps in "));
}

TEST(Train, OverridesAndTheBareFormAreTheSame) {
  const TempFolder folder;
  write_file(folder / "run.json", dump_json(tiny_run(folder / "a")));
  qtrain_ok({.words = {"run.json", "max_steps=2"}, .folder = folder.path()});
  qtrain_ok({.words = {"train", "run.json", "max_steps=2", "output_dir=" + (folder / "b").string()},
             .folder = folder.path()});
  EXPECT_EQ(history(folder / "a", "loss").size(), 2u);
  EXPECT_EQ(bytes_of(folder / "a/model.safetensors"), bytes_of(folder / "b/model.safetensors"));
}

TEST(Help, IsThereForEveryCommand) {
  const std::string general = qtrain_ok({.words = {"--help"}}).out;
  for (const char* command : {"train", "eval", "generate", "chat", "validate", "tokenize", "render", "import",
                              "inspect", "config", "doctor", "completion"}) {
    EXPECT_THAT(general, HasSubstr(std::string("  ") + command));
    const Outcome outcome = qtrain_ok({.words = {command, "--help"}});
    EXPECT_THAT(outcome.out, HasSubstr(std::string("usage: qtrain ") + command));
    EXPECT_EQ(outcome.err, "");
  }
}

TEST(Help, VersionAndWrongWords) {
  EXPECT_THAT(qtrain_ok({.words = {"--version"}}).out, ::testing::MatchesRegex("qtrain [0-9]+\\.[0-9]+\\.[0-9]+\n"));
  EXPECT_EQ(qtrain({.words = {}}).code, 2);
  const Outcome command = qtrain({.words = {"trian"}});
  EXPECT_EQ(command.code, 2);
  EXPECT_THAT(command.err, HasSubstr("\"train\""));
  const Outcome flag = qtrain({.words = {"generate", "--modle", "x"}});
  EXPECT_EQ(flag.code, 2);
  EXPECT_THAT(flag.err, HasSubstr("--model"));
  const Outcome missing = qtrain({.words = {"/nowhere/run.json"}});
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.err, HasSubstr("/nowhere/run.json"));
}

TEST(Doctor, ReportsInJson) {
  const Json report = parse_json(qtrain_ok({.words = {"doctor", "--json"}}).out, "stdout");
  EXPECT_TRUE(report.contains("processor"));
  EXPECT_TRUE(report.contains("memory"));
}

TEST(Completion, IsForThreeShells) {
  EXPECT_EQ(qtrain({.words = {"completion", "tcsh"}}).code, 2);
}

}  // namespace
}  // namespace qtrain::e2e
