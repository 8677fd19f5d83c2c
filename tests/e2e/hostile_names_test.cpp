// Names, keys and texts in files that contain terminal commands never reach a terminal unescaped.
#include <fmt/format.h>

#include "core/formats/gguf_write.h"
#include "core/formats/safetensors.h"
#include "core/os/file.h"
#include "core/utf8.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;

/// Sets the window title, changes colors, erases, and reverses the writing direction.
const std::string kHostile = "a\x1b]0;title\x07\x1b[2J\r\xc2\x9b\x33\x31m\xe2\x80\xae\x7f";

void expect_harmless(const std::string& text, const std::string& where) {
  for (const char* command : {"\x1b", "\x07", "\r", "\xc2\x9b", "\xe2\x80\xae", "\x7f"})
    EXPECT_EQ(text.find(command), std::string::npos) << where << ": " << printable(text);
  EXPECT_TRUE(is_valid_utf8(text)) << where << ": " << printable(text);
}

class HostileNames : public ::testing::Test {
 protected:
  static std::string hostile() { return kHostile + "\xff"; }  // JSON cannot contain the last byte
  std::string config(const Json& json) const {
    write_file(folder_ / "config.json", dump_json(json));
    return (folder_ / "config.json").string();
  }
  Json run() const { return tiny_run(folder_ / "out"); }
  Json run_with(const char* key, const Json& value) const {
    Json c = run();
    c[key] = value;
    return c;
  }
  std::string rows(const Json& row) const {
    write_file(folder_ / (hostile() + ".jsonl"), dump_json(row) + "\n");
    return (folder_ / (hostile() + ".jsonl")).string();
  }
  void expect_all_harmless(const std::vector<std::vector<std::string>>& commands) const {
    for (std::vector<std::string> words : commands) {
      const std::string where = printable(fmt::format("{} {}", words[0], words.back()));
      const Outcome people = qtrain({.words = words});
      EXPECT_NE(people.code, 1) << where;
      expect_harmless(people.out + people.err, where);
      words.emplace_back("--json");
      const Outcome document = qtrain({.words = words});
      expect_harmless(document.err, where + " --json");
      EXPECT_TRUE(is_valid_utf8(document.out)) << where;
      if (!document.out.empty()) EXPECT_TRUE(Json::accept(document.out)) << where << document.out;
    }
  }
  TempFolder folder_;
};

TEST_F(HostileNames, OfFilesAndFolders) {
  const std::string there = (folder_ / hostile()).string(), none = (folder_ / ("no" + hostile())).string();
  Json c = tiny_run(fs::path(there));
  c["max_steps"] = 1;
  write_file(folder_ / "run.json", dump_json(run_with("max_steps", 1)));
  fs::create_directory(there);
  write_file(there + "/config.json", dump_json(run_with("max_steps", 1)));
  qtrain_ok({.words = {there + "/config.json", "output_dir=" + (folder_ / "out").string()}});
  fs::copy(folder_ / "out", fs::path(there) / "out", fs::copy_options::recursive);
  const std::string run_folder = there + "/out";
  expect_all_harmless({{"train", none + ".json"},
                       {"validate", none + ".json"},
                       {"validate", there + "/config.json", "output_dir=" + none},
                       {"config", there + "/config.json"},
                       {"estimate", there + "/config.json"},
                       {"datasets", there},
                       {"datasets", none},
                       {"inspect", run_folder},
                       {"inspect", none},
                       {"report", run_folder},
                       {"compare", run_folder, run_folder, "--output", there + "/c.html"},
                       {"verify", run_folder, "--steps", "0"},
                       {"clean", run_folder},
                       {"merge", "--model", none, "--adapter", none, "--output", none},
                       {"export", "--model", none, "--output", none},
                       {"quantize", "--model", run_folder, "--output", there + "/q"},
                       {"import", none, "--output", none},
                       {"generate", "--model", none, "--prompt", "x"},
                       {"tokenize", "--model", none},
                       {"render", "--model", none, "--input", none}});
}

TEST_F(HostileNames, OfOutputsStayOnOneLine) {
  Json c = run_with("max_steps", 1);
  c["output_dir"] = (folder_ / "out\nforged").string();
  const Outcome run = qtrain_ok({.words = {config(c)}});
  const std::string said = run.err + run.out;
  EXPECT_THAT(said, HasSubstr(R"(out\nforged)"));
  for (const char* end : {"out\n", "\n  forged"}) EXPECT_EQ(said.find(end), std::string::npos) << said;
}

TEST_F(HostileNames, OfWordsOfTheCommandLine) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{hostile()},
                                             {"train", "--" + hostile()},
                                             {"report", "a", hostile()},
                                             {"train", "c.json", hostile() + "=1"},
                                             {"bench", hostile()},
                                             {"export", "--model", "m", "--output", "o", "--type", hostile()}}) {
    const Outcome outcome = qtrain({.words = words});
    EXPECT_NE(outcome.code, 0);
    expect_harmless(outcome.out + outcome.err, printable(words.back()));
  }
}

TEST_F(HostileNames, OfKeysAndValues) {
  for (const Json& json :
       {run_with(kHostile.c_str(), 1), run_with("optim", kHostile), run_with("dataset_name", kHostile),
        run_with("model_name_or_path", kHostile), run_with("hub_model_id", kHostile), run_with("run_name", kHostile),
        run_with("dialect", kHostile), run_with("column_mapping", {{kHostile, kHostile}}),
        run_with("lora_target_modules", kHostile), run_with("max_steps", kHostile)}) {
    const std::string file = config(json);
    expect_all_harmless({{"config", file}, {"validate", file}});
  }
}

TEST_F(HostileNames, OfRows) {
  for (const Json& row : {Json{{kHostile, kHostile}}, Json{{"messages", {{{"role", kHostile}, {"content", "x"}}}}},
                          Json{{"input_ids", kHostile}}, Json{{"prompt", kHostile}}}) {
    const std::string file = config(run_with("dataset_name", rows(row)));
    expect_all_harmless({{"train", file}, {"validate", file}, {"preprocess", file}, {"datasets", folder_.path()}});
  }
}

TEST_F(HostileNames, OfTensorsAndMetadata) {
  const float value = 1;
  const fs::path model = folder_ / "model", gguf = folder_ / "model.gguf";
  fs::create_directory(model);
  fs::copy_file(kGoldens / "llama_gqa3_tied/config.json", model / "config.json");
  write_safetensors(model / "model.safetensors", NamedTensors{{kHostile, view_of(std::span(&value, 1), {1})}});
  GgufMetadata metadata;
  metadata.put_text("general.architecture", kHostile);
  metadata.put_text("general.name", kHostile);
  metadata.put_text(kHostile, kHostile);
  write_gguf({gguf}, metadata, {});
  const std::string file = config(run_with("model_name_or_path", model.string()));
  expect_all_harmless({{"inspect", model, "--tensors"},
                       {"inspect", model / "model.safetensors", "--tensors"},
                       {"inspect", gguf, "--tensors"},
                       {"import", gguf, "--output", folder_ / "imported"},
                       {"quantize", "--model", model, "--output", folder_ / "q"},
                       {"validate", file}});
}

TEST_F(HostileNames, OfAnAnswerStayInData) {
  fs::create_directories(folder_ / "model");
  for (const char* file : {"config.json", "model.safetensors"})
    fs::copy_file(kGoldens / "llama_gqa3_tied" / file, folder_ / "model" / file);
  const int size = read_json(folder_ / "model/config.json").at("vocab_size");
  write_letter_tokenizer(folder_ / "model", size);
  Json tokenizer = read_json(folder_ / "model/tokenizer.json");
  Json vocabulary = Json::object();  // each token begins with a terminal command
  for (const auto& [letter, id] : tokenizer["model"]["vocab"].items())
    vocabulary[id.get<int>() < 8 ? letter : "\x1b[31m" + letter] = id;
  tokenizer["model"]["vocab"] = vocabulary;
  write_file(folder_ / "model/tokenizer.json", dump_json(tokenizer));
  const Outcome piped = qtrain_ok({.words = {"generate", "--model", (folder_ / "model").string(), "--raw", "--greedy",
                                             "--prompt", letters({5, 6}), "--max_new_tokens", "4"}});
  EXPECT_THAT(piped.out, HasSubstr("\x1b[31m")) << "another program reads what the model has written";
  expect_harmless(piped.err, "messages");
}

}  // namespace
}  // namespace qtrain::e2e
