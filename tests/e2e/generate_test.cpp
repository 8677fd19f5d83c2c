#include <cmath>

#include "core/formats/safetensors.h"
#include "core/fp8.h"
#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;

/// A golden model with a tokenizer of one character per id, so that prompts and answers are ids written as text.
class Generate : public ::testing::Test {
 protected:
  std::string model(const std::string& name) {
    const fs::path to = folder_ / name;
    fs::create_directories(to);
    for (const char* file : {"config.json", "model.safetensors"}) fs::copy_file(kGoldens / name / file, to / file);
    write_letter_tokenizer(to, read_json(to / "config.json").at("vocab_size"));
    return to.string();
  }
  /// A model with random weights, which is smaller than a trained ChatML model and enough for these tests: its weights
  /// are so large that the output depends on every previous token.
  std::string chat_model() {
    write_untrained_model(folder_ / "chat");
    Json model = read_json(folder_ / "chat/config.json");
    model.update({{"initializer_range", 0.6}, {"tie_word_embeddings", false}});
    write_file(folder_ / "chat/config.json", dump_json(model));
    Json config = tiny_run(folder_ / "chat_out");
    config.update({{"model_name_or_path", (folder_ / "chat").string()}, {"max_steps", 1}, {"learning_rate", 0.0}});
    train_ok(folder_.path(), config);
    return (folder_ / "chat_out").string();
  }
  TempFolder folder_;
};

std::vector<int> ids(const Json& list) {
  return list.get<std::vector<int>>();
}

TEST_F(Generate, RowsAreReadAsTrainingReadsThem) {
  const std::string model = chat_model(), rows = (folder_ / "rows.jsonl").string();
  const Json question = {{{"role", "user"}, {"content", "q"}}}, tool = {{"name", "f"}};
  write_file(rows, jsonl({{{"messages", question}},
                          {{"messages", question}, {"tools", Json::array({tool})}},
                          {{"messages", question}, {"tools", dump_json(Json::array({tool}))}},
                          {{"messages", question}, {"tools", Json::array({dump_json(tool)})}},
                          {{"messages", question}, {"chat_template_kwargs", {{"enable_thinking", true}}}},
                          {{"messages", {{{"from", "human"}, {"value", "q"}}}}}}));
  const Outcome outcome = qtrain_ok(
      {.words = {"generate", "--model", model, "--greedy", "--input", rows, "--json", "--max_new_tokens", "8"}});
  std::vector<std::string> answers;
  for (const Json& row : parse_json(outcome.out, "stdout")) answers.push_back(row.at("completion"));
  ASSERT_EQ(answers.size(), 6u);
  EXPECT_NE(answers[0], answers[1]) << "the tools are rendered";
  EXPECT_EQ(answers[1], answers[2]);
  EXPECT_EQ(answers[1], answers[3]);
  EXPECT_NE(answers[0], answers[4]) << "a variable of the template";
  EXPECT_EQ(answers[0], answers[5]);
}

TEST_F(Generate, GreedyAnswersAreThoseOfTransformers) {
  for (const char* name : {"llama_gqa3_tied", "mistral_window", "qwen3_gqa7_tied"}) {
    const Json golden = read_json(kGoldens / name / "generation.json");
    std::map<std::string, std::vector<Json>> by_penalty;
    for (const Json& row : golden.at("rows")) by_penalty[row.at("repetition_penalty").dump()].push_back(row);
    const std::string folder = model(name);
    for (const auto& [penalty, rows] : by_penalty) {
      std::vector<Json> prompts;
      for (const Json& row : rows)
        prompts.push_back({{"prompt", letters(ids(row.at("prompt")))}, {"kept", row.at("ids")}});
      write_file(folder_ / "prompts.jsonl", jsonl(prompts));
      const fs::path output = folder_ / "answers.jsonl";
      qtrain_ok({.words = {"generate", "--model", folder, "--raw", "--greedy", "--input",
                           (folder_ / "prompts.jsonl").string(), "--output", output.string(), "--max_new_tokens",
                           golden.at("max_new_tokens").dump(), "--repetition_penalty", penalty, "--dtype", "float32"}});
      const auto answers = read_jsonl(output);
      ASSERT_EQ(answers.size(), rows.size());
      for (std::size_t i = 0; i < rows.size(); ++i) {
        std::vector<int> expected = ids(rows[i].at("ids"));
        const bool stopped = !expected.empty() && expected.back() == golden.at("eos_token_id").get<int>();
        if (stopped) expected.pop_back();
        EXPECT_EQ(answers[i].at("completion"), letters(expected)) << name << " row " << i << " penalty " << penalty;
        EXPECT_EQ(answers[i].at("finish_reason"), stopped ? "stop" : "length");
        EXPECT_EQ(answers[i].at("tokens"), expected.size());
        EXPECT_EQ(answers[i].at("prompt"), prompts[i].at("prompt"));
        EXPECT_EQ(answers[i].at("kept"), prompts[i].at("kept"));
      }
    }
  }
}

TEST_F(Generate, ChoosesTokensOfTheTokenizer) {
  const std::string folder = model("llama_gqa3_tied");
  write_letter_tokenizer(folder, 16);
  for (const char* how : {"--greedy", "--temperature=3"}) {
    const fs::path output = folder_ / "answers.jsonl";
    qtrain_ok({.words = {"generate", "--model", folder, "--raw", how, "--prompt", letters({5, 6, 7}), "--output",
                         output.string(), "--max_new_tokens", "20", "--dtype", "float32"}});
    const Json answer = read_jsonl(output).at(0);
    EXPECT_EQ(answer.at("completion").get<std::string>().size(), 2 * answer.at("tokens").get<std::size_t>()) << how;
  }
}

TEST_F(Generate, AnswersDoNotDependOnTheBatchAndKeepTheirOrder) {
  const std::string folder = model("qwen3_gqa7_tied");
  std::vector<Json> prompts;
  for (int i = 0; i < 9; ++i)
    prompts.push_back({{"prompt", letters(std::vector<int>(1 + i * 3 % 7, 10 + i))}, {"i", i}});
  write_file(folder_ / "prompts.jsonl", jsonl(prompts));
  std::vector<std::string> outputs;
  for (const char* batch : {"1", "2", "64"})
    outputs.push_back(
        qtrain_ok({.words = {"generate", "--model", folder, "--raw", "--input", (folder_ / "prompts.jsonl").string(),
                             "--temperature", "0.9", "--top_k", "0", "--max_new_tokens", "9", "--batch_size", batch}})
            .out);
  EXPECT_EQ(outputs[0], outputs[1]);
  EXPECT_EQ(outputs[0], outputs[2]);
  write_file(folder_ / "out.jsonl", outputs[0]);
  const auto rows = read_jsonl(folder_ / "out.jsonl");
  ASSERT_EQ(rows.size(), 9u);
  for (int i = 0; i < 9; ++i) EXPECT_EQ(rows[i].at("i"), i);
}

TEST_F(Generate, SamplingIsRepeatableBySeed) {
  const std::string folder = model("llama_gqa3_tied");
  const auto sampled = [&](const char* seed) {
    return qtrain_ok({.words = {"generate", "--model", folder, "--raw", "--prompt", letters({5, 6}), "--temperature",
                                "1.5", "--max_new_tokens", "30", "--seed", seed}})
        .out;
  };
  const std::string once = sampled("1");
  EXPECT_EQ(once, sampled("1"));
  EXPECT_NE(once, sampled("2"));
  EXPECT_GT(once.size(), 3u);
}

TEST_F(Generate, NarrowSamplingIsGreedy) {
  const std::string folder = model("llama_gqa3_tied");
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> words{"generate",      "--model",          folder, "--raw", "--prompt",
                                   letters({5, 6}), "--max_new_tokens", "10"};
    words.insert(words.end(), more.begin(), more.end());
    return qtrain_ok({.words = words}).out;
  };
  const std::string greedy = with({"--greedy"});
  EXPECT_EQ(with({"--temperature", "0"}), greedy);
  EXPECT_EQ(with({"--temperature", "3", "--top_k", "1"}), greedy);
  EXPECT_EQ(with({"--temperature", "3", "--top_p", "0.000001"}), greedy);
  EXPECT_EQ(with({"--temperature", "3", "--min_p", "1"}), greedy);
  EXPECT_NE(with({"--temperature", "3"}), greedy);
}

TEST_F(Generate, EndsBeforeAStopText) {
  const std::string folder = model("llama_gqa3_tied");
  std::vector<std::string> words{"generate", "--model",          folder, "--raw", "--prompt", letters({7, 11, 3}),
                                 "--greedy", "--max_new_tokens", "12"};
  const std::string whole = qtrain_ok({.words = words}).out;
  const std::string stop = whole.substr(6, 2);  // the fourth token
  words.insert(words.end(), {"--stop", stop, "--json"});
  const Json row = parse_json(qtrain_ok({.words = words}).out, "stdout");
  EXPECT_EQ(row.at("completion"), whole.substr(0, whole.find(stop)));
  EXPECT_EQ(row.at("finish_reason"), "stop");
}

TEST_F(Generate, SpeaksThroughTheChatTemplate) {
  const std::string folder = chat_model();
  const std::vector<std::string> common{"generate", "--model", folder, "--greedy", "--max_new_tokens", "5"};
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> words = common;
    words.insert(words.end(), more.begin(), more.end());
    return qtrain_ok({.words = words}).out;
  };
  const std::string chat = with({"--prompt", "hello"});
  // The same prompt, written out.
  EXPECT_EQ(chat, with({"--raw", "--prompt", "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"}));
  EXPECT_EQ(with({"--system", "s", "--prompt", "hello"}),
            with({"--raw", "--prompt",
                  "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"}));
  // Rows of messages: a last assistant turn is the expected answer, so it is left out.
  write_file(folder_ / "rows.jsonl",
             R"({"messages": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "x"}]})"
             "\n");
  const Json row = parse_json(with({"--input", (folder_ / "rows.jsonl").string()}), "stdout");
  EXPECT_EQ(row.at("completion").get<std::string>() + "\n", chat);
}

TEST_F(Generate, AppliesTheAdapter) {
  Json config = tiny_lora_run(folder_ / "adapter");
  config.update({{"learning_rate", 0.05}, {"max_steps", 20}});
  train_ok(folder_.path(), config);
  const std::string folder = model("llama_gqa3_tied");
  std::vector<std::string> words{"generate", "--model",          folder, "--raw", "--prompt", letters({19, 20, 21}),
                                 "--greedy", "--max_new_tokens", "12"};
  const std::string base = qtrain_ok({.words = words}).out;
  words.insert(words.end(), {"--adapter", (folder_ / "adapter").string()});
  EXPECT_NE(qtrain_ok({.words = words}).out, base);
}

/// Rounds the linear layers of a float32 folder to FP8: layers with the same input have one scale.
void round_to_fp8(const fs::path& folder) {
  std::map<std::string, std::vector<float>> weights;
  NamedTensors tensors;
  const SafetensorsReader reader(folder);
  for (const auto& [name, t] : reader.tensors()) {
    weights[name] = {t.as<float>(), t.as<float>() + t.numel()};
    tensors.emplace_back(name, ConstTensor{reinterpret_cast<const std::byte*>(weights[name].data()), t.dtype, t.shape});
  }
  for (const char* layer : {"model.layers.0.", "model.layers.1."})
    for (const std::vector<std::string>& group :
         {std::vector<std::string>{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
          {"self_attn.o_proj"},
          {"mlp.gate_proj", "mlp.up_proj"},
          {"mlp.down_proj"}}) {
      float largest = 0;
      for (const std::string& module : group)
        for (const float v : weights.at(layer + module + ".weight")) largest = std::max(largest, std::abs(v));
      const float scale = largest / 448;
      for (const std::string& module : group)
        for (float& v : weights.at(layer + module + ".weight"))
          v = decode_fp8<E4m3>(encode_fp8<E4m3>(v * (1 / scale))) * scale;
    }
  write_safetensors(folder / "model.safetensors.new", tensors);
  fs::rename(folder / "model.safetensors.new", folder / "model.safetensors");
}

TEST_F(Generate, StoresWeightsInFp8) {
  const std::string folder = model("llama_gqa3_tied");
  const auto answer = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words{"generate", "--model", folder, "--raw", "--prompt", letters({19, 20, 21})};
    for (const char* word : {"--max_new_tokens", "20", "--temperature", "0.9", "--top_k", "0"}) words.push_back(word);
    words.insert(words.end(), more.begin(), more.end());
    return qtrain(Call{.words = words});
  };
  const Outcome stored = answer({"--load_in_fp8"}), both = answer({"--load_in_fp8", "--load_in_4bit"});
  EXPECT_EQ(stored.code, 0) << stored.err;
  EXPECT_EQ(both.code, 2);
  EXPECT_THAT(both.err, HasSubstr("exclude each other"));
  EXPECT_NE(stored.out, answer({}).out);
  round_to_fp8(folder);
  EXPECT_EQ(stored.out, answer({}).out);
}

TEST_F(Generate, FollowsGenerationConfig) {
  const std::string folder = model("qwen3_gqa7_tied");
  const std::vector<std::string> words{"generate",   "--model",          folder, "--raw", "--prompt",
                                       letters({5}), "--max_new_tokens", "12"};
  const std::string greedy = qtrain_ok({.words = words}).out;
  write_file(fs::path(folder) / "generation_config.json", R"({"do_sample": true, "temperature": 4.0, "top_k": 0})");
  EXPECT_NE(qtrain_ok({.words = words}).out, greedy);
  // Now the first token of the greedy answer that differs from the one before ends it.
  const auto ids =
      read_json(kGoldens / "qwen3_gqa7_tied/generation.json").at("rows")[0].at("ids").get<std::vector<int>>();
  const auto end = std::ranges::find_if(ids, [&](int id) { return id != ids.front(); });
  ASSERT_NE(end, ids.end());
  write_file(fs::path(folder) / "generation_config.json", dump_json({{"eos_token_id", {2, *end}}}));
  EXPECT_EQ(qtrain_ok({.words = words}).out, letters({ids.begin(), end}) + "\n");
}

TEST_F(Generate, SaysOnceWhatOfGenerationConfigHasNoEffect) {
  const std::string folder = model("qwen3_gqa7_tied");
  const std::vector<std::string> words{"generate",   "--model",          folder, "--raw", "--prompt",
                                       letters({5}), "--max_new_tokens", "2"};
  const std::string about = "no effect here, so answers may differ";
  EXPECT_EQ(qtrain_ok({.words = words}).err.find(about), std::string::npos);
  write_file(fs::path(folder) / "generation_config.json", R"({"num_beams": 4, "no_repeat_ngram_size": 3})");
  const std::string err = qtrain_ok({.words = words}).err;
  EXPECT_THAT(err, HasSubstr("generation_config.json: no_repeat_ngram_size, num_beams have " + about));
  EXPECT_EQ(err.find(about), err.rfind(about));
}

TEST_F(Generate, RefusesWhatItCannotAnswer) {
  const std::string folder = model("llama_gqa3_tied");
  const auto code = [&](std::vector<std::string> more) {
    std::vector<std::string> words{"generate", "--model", folder};
    words.insert(words.end(), more.begin(), more.end());
    return qtrain({.words = words});
  };
  EXPECT_EQ(code({}).code, 2);
  EXPECT_EQ(code({"--prompt", "a", "--input", "b"}).code, 2);
  EXPECT_EQ(code({"--prompt", letters({5}), "--raw", "--top_p", "0"}).code, 2);
  const Outcome chat = code({"--prompt", letters({5})});
  EXPECT_EQ(chat.code, 3);
  EXPECT_THAT(chat.err, HasSubstr("chat template"));
  const Outcome long_prompt = code({"--raw", "--prompt", letters(std::vector<int>(64, 5))});
  EXPECT_EQ(long_prompt.code, 3);
  EXPECT_THAT(long_prompt.err, HasSubstr("64 tokens"));
  write_file(folder_ / "rows.jsonl", "{\"prompt\": \"" + letters({5}) + "\"}\n{\"x\": 1}\n");
  const Outcome row = code({"--raw", "--input", (folder_ / "rows.jsonl").string()});
  EXPECT_EQ(row.code, 3);
  EXPECT_THAT(row.err, HasSubstr("rows.jsonl:2"));
  EXPECT_EQ(row.out, "");
  fs::remove(fs::path(folder) / "model.safetensors");
  EXPECT_EQ(code({"--raw", "--prompt", letters({5})}).code, 3);
}

// A regular expression that backtracks excessively on many a's, everywhere that a text is encoded.
TEST_F(Generate, SaysWhichTextAnExpressionGivesUpOn) {
  const std::string model = chat_model(), text(2000, 'a'), rows = (folder_ / "rows.jsonl").string();
  Json json = read_json(fs::path(model) / "tokenizer.json");
  const Json split{
      {"type", "Split"}, {"pattern", {{"Regex", "(?:a|aa|a(?=a))+[bc]"}}}, {"behavior", "Isolated"}, {"invert", false}};
  const Json bytes{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, bytes}}};
  write_file(fs::path(model) / "tokenizer.json", json.dump());
  write_file(rows, jsonl({{{"prompt", "b"}, {"completion", "c"}}, {{"prompt", text}, {"completion", "c"}}}));
  Json config = tiny_run(folder_ / "out");
  config.update({{"model_name_or_path", model}, {"dataset_name", rows}, {"eval_dataset_name", rows}});
  write_file(folder_ / "run.json", dump_json(config));
  const std::string run = (folder_ / "run.json").string();
  for (const auto& [place, call] : std::vector<std::pair<std::string, Call>>{
           {"--prompt: ", {.words = {"generate", "--model", model, "--prompt", text}}},
           {"rows.jsonl:2", {.words = {"generate", "--model", model, "--input", rows}}},
           {"rows.jsonl:2", {.words = {"eval", run, "--base", "--generate"}}},
           {"rows.jsonl:2", {.words = {run}}},
           {"the conversation: ", {.words = {"chat", "--model", model}, .input = text + "\n"}}}) {
    const Outcome outcome = qtrain(call);
    EXPECT_EQ(outcome.code, call.words[0] == "chat" ? 0 : 3) << place << outcome.err;  // a chat continues
    EXPECT_THAT(outcome.err, HasSubstr(place));
    EXPECT_THAT(outcome.err, HasSubstr("in tokenizer.json failed on a text")) << place;
  }
}

TEST_F(Generate, ChatKeepsTheTurns) {
  const std::string folder = chat_model();
  const std::vector<std::string> words{"chat", "--model", folder, "--greedy", "--max_new_tokens", "5"};
  const Outcome two = qtrain_ok({.words = words, .input = "hello\nagain\n"});
  const Outcome one = qtrain_ok({.words = words, .input = "hello\n"});
  const std::string& first = one.out;
  EXPECT_TRUE(two.out.starts_with(first)) << two.out;
  const std::string fresh = qtrain_ok({.words = words, .input = "again\n"}).out;
  EXPECT_GT(two.out.size(), first.size());
  EXPECT_NE(two.out.substr(first.size()), fresh) << "the second answer does not know the first turn";
}

TEST_F(Generate, ChatIgnoresEmptyLinesAndMarksCutAnswers) {
  const std::vector<std::string> words{"chat", "--model", chat_model(), "--greedy", "--max_new_tokens", "3"};
  const Outcome plain = qtrain_ok({.words = words, .input = "hello\nagain\n"});
  const Outcome gaps = qtrain_ok({.words = words, .input = "\nhello\n  \n\nagain\n"});
  EXPECT_EQ(gaps.out, plain.out);
  EXPECT_THAT(plain.err, HasSubstr("[cut off after 3 tokens: raise --max_new_tokens for longer answers]"));
}

TEST_F(Generate, ChatTakesCommands) {
  const std::vector<std::string> words{"chat", "--model", chat_model(), "--greedy", "--max_new_tokens", "5"};
  const auto said = [&](const std::string& input) { return qtrain_ok({.words = words, .input = input}); };
  const std::string first = said("hello\n").out;
  EXPECT_EQ(said("hello\n/reset\nhello\n").out, first + first);
  const std::string with_system = said("/system Be odd.\nhello\n").out;
  EXPECT_NE(with_system, first);
  EXPECT_EQ(said("/system Be odd.\n/reset\nhello\n").out, with_system);
  EXPECT_EQ(said("/system Be odd.\n/system\nhello\n").out, first);
  const Outcome help = said("/help\n/unheard\n/save\n");
  EXPECT_EQ(help.out, "");
  EXPECT_THAT(help.err, ::testing::AllOf(HasSubstr("/reset"), HasSubstr("/system TEXT"), HasSubstr("/save FILE"),
                                         HasSubstr("no command /unheard"), HasSubstr("needs a file name")));
  const fs::path file = folder_ / "saved.jsonl";
  said("/system s\nhello\n/save " + file.string() + "\n/reset\n//a\n/save " + file.string() + "\n/save /nowhere/x\n");
  const auto rows = read_jsonl(file);
  ASSERT_EQ(rows.size(), 2u);
  ASSERT_EQ(rows[0]["messages"].size(), 3u);
  EXPECT_EQ(rows[0]["messages"][0], (Json{{"role", "system"}, {"content", "s"}}));
  EXPECT_EQ(rows[0]["messages"][1]["content"], "hello");
  EXPECT_EQ(rows[0]["messages"][2]["role"], "assistant");
  EXPECT_EQ(rows[1]["messages"][1]["content"], "/a");
}

TEST_F(Generate, ChatOnATerminalEditsLinesStopsAnswersAndRemembers) {
  const std::string folder = chat_model();
  Json config = read_json(fs::path(folder) / "config.json");
  config["max_position_embeddings"] = 32768;  // for a long answer that is stopped
  write_file(fs::path(folder) / "config.json", dump_json(config));
  const Launch launch{.argv = {program(), "chat", "--model", folder, "--greedy", "--max_new_tokens", "30000"},
                      .environment = {"XDG_STATE_HOME=" + (folder_ / "state").string(), "TERM=xterm", "NO_COLOR=1"},
                      .columns = 100};
  {
    Process chat(launch);
    ASSERT_TRUE(chat.waits_for("Ctrl-D quits.\r\n")) << chat.said();
    chat.type("/hexp\x7f\x7flp\r");  // a line with a corrected typo
    ASSERT_TRUE(chat.waits_for("begins with /.\r\n> ")) << chat.said();
    chat.type("\x03");
    ASSERT_TRUE(chat.waits_for("warning: press Ctrl-D to quit\r\n> ")) << "Ctrl-C ended the program: " << chat.said();
    const auto stopped = [&] { return chat.said().find("[stopped after ") != std::string::npos; };
    const auto seen_within_a_minute = [](const auto& seen) {
      for (int i = 0; i < 6000 && !seen(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      return seen();
    };
    for (const char* message : {"hello", "a", "what is this", "tell me more", "and then", "once upon a time"}) {
      const std::size_t printed = chat.printed().size(), before = chat.said().size();
      chat.type(std::string(message) + "\r");
      // An answer may be empty: then the next prompt follows.
      ASSERT_TRUE(seen_within_a_minute([&] {
        return chat.printed().size() > printed || chat.said().find("\r\n> ", before) != std::string::npos;
      })) << chat.said();
      chat.type("\x03");  // interrupts the answer, or the next prompt if the answer was short
      ASSERT_TRUE(seen_within_a_minute([&] { return chat.said().find("\r\n> ", before) != std::string::npos; }))
          << chat.said();
      if (stopped()) break;
    }
    ASSERT_TRUE(stopped()) << chat.said();
    chat.type("/reset\r");
    chat.type("/unheard\r");
    // Ctrl-D ends the chat while a line is edited, but not while an answer is generated.
    ASSERT_TRUE(chat.waits_for("no command /unheard; /help lists them\r\n> ")) << chat.said();
    chat.type("\x04");
    const Outcome o = chat.wait();
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_GT(o.out.size(), 10u);
    EXPECT_THAT(o.err, ::testing::Not(HasSubstr("[cut off")));
  }
  Process again(launch);
  ASSERT_TRUE(again.waits_for("Ctrl-D quits.\r\n")) << again.said();
  ASSERT_TRUE(again.waits_for("> ")) << again.said();
  again.type("\x1b[A\r");  // up: recalls the last line
  EXPECT_TRUE(again.waits_for("no command /unheard; /help lists them\r\n> ")) << again.said();
  again.type("\x04");
  EXPECT_EQ(again.wait().code, 0) << again.said();
}

TEST_F(Generate, WithoutArgumentsItNamesTheModelThatIsMissing) {
  const Outcome o = qtrain({.words = {"generate"}});
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, HasSubstr("--model"));
}

}  // namespace
}  // namespace qtrain::e2e
